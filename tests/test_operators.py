"""H as an operator: each of its kinds against its matrix in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import sample

import calibjax as cj
from calibjax._data.data import Data, as_data, clean
from calibjax.discrepancy import normal_form
from calibjax.operators.gram_matrix import low_rank_h, tiled_h

N = 21


def tiles(key, float64):
    """Tiles of masked data, and what they are tiles of."""
    kernel, predictions, targets = sample("categorical-tv-white", N)
    where = jnp.arange(N) % 4 > 0
    matrix = np.array(cj.h_matrix(kernel, predictions, targets))
    return tiled_h(normal_form(kernel), clean(as_data(predictions, targets, where=where))), matrix


def low_rank(key, float64):
    """Random features, which are a matrix with few columns."""
    kernel, predictions, targets = sample("normal-w2-gaussian", N)
    weights = jnp.asarray(np.arange(N) % 5 > 0, float)
    operator = low_rank_h(
        key, normal_form(kernel), Data(predictions, targets, weights=weights), 7, None
    )
    psi = np.asarray(operator.psi((predictions, targets)))
    assert psi.shape == (N, 14)
    return operator, psi @ psi.T


@pytest.mark.parametrize("make", [tiles, pytest.param(low_rank, marks=pytest.mark.slow)])
def test_sums_of_each_kind(make, key, float64):
    operator, matrix = make(key, float64)
    weights = np.asarray(operator.weights)
    off_diagonal = matrix - np.diag(np.diag(matrix))
    vectors = np.random.default_rng(1).normal(size=(4, N)) * weights

    def sums(operator, vectors):
        moments = operator.row_sums_and_squares()
        forms = operator.quadratic_forms(vectors)
        eigenvalues = jnp.linalg.eigvalsh(operator.reduced())
        return operator.diagonal, *moments, *forms, operator.trace(power=2), eigenvalues

    found = jax.jit(sums)(operator, jnp.asarray(vectors))
    diagonal, row_sums, squares, forms, again, trace, eigenvalues = map(np.asarray, found)
    kept = weights > 0

    def check(found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)

    check(diagonal[kept], np.diag(matrix)[kept])
    check(row_sums[kept], (off_diagonal @ weights)[kept])
    check(again[kept], (off_diagonal @ weights)[kept])
    check(squares, weights @ off_diagonal**2 @ weights)
    check(forms, np.einsum("ri,ij,rj->r", vectors, off_diagonal, vectors))
    check(trace, np.sum(weights * np.diag(matrix) ** 2))
    expected = np.linalg.eigvalsh(np.diag(weights) @ matrix @ np.diag(weights))
    largest = min(len(expected), len(eigenvalues), 3)
    check(np.sort(eigenvalues)[-largest:], np.sort(expected)[-largest:])
    n = weights.sum()
    check(operator.unbiased(found[1]), weights @ off_diagonal @ weights / (n * (n - 1)))


@pytest.mark.parametrize("inside_jit", [False, True])
def test_an_asymmetric_kernel_gives_no_number(inside_jit, key):
    _, predictions, targets = sample("categorical-tv-white", N, dtype="float32")

    def leaning(p, q):
        return 1 + p.probs[0] - q.probs[0] / 2

    kernel = cj.TensorProduct(leaning, cj.WhiteKernel())

    def estimates(predictions, targets, where):
        rows = kernel, predictions, targets
        test = cj.asymptotic_skce_test(key, *rows, method="gamma", where=where)
        blocks = cj.asymptotic_block_skce_test(*rows, block_size=5, where=where)
        return cj.skce(*rows, where=where), test.pvalue, test.estimate, blocks.pvalue

    run = jax.jit(estimates) if inside_jit else estimates
    assert all(map(jnp.isnan, run(predictions, targets, jnp.arange(N) < 15)))
    if not inside_jit:
        with pytest.raises(ValueError, match="prediction_kernel must be symmetric"):
            cj.skce(kernel, predictions, targets)
