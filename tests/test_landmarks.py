"""Rows in the cells of landmarks, the nearest ones, and the statistic by plain sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax as cj
from calibjax._data.data import as_data, clean
from calibjax._numbers.unit_interval import cell_of_line, cells_of_line
from calibjax.discrepancy import normal_form
from calibjax.features.weighted_sums import Landmarks
from calibjax.hypothesis_tests._kernel_terms import terms_of
from calibjax.hypothesis_tests._redrawn_skce import redrawn_skce
from calibjax.nulls.draws import draw_batches, draw_pits
from calibjax.nulls.sampler import NullSampler

N, N_CELLS, LENGTHSCALE = 60, 7, 0.3
AT = np.arange(N_CELLS) * N // N_CELLS


def statistics(key, kernels, data, n_draws):
    """Those of the test with some cells, and its key of draws."""
    terms, options = terms_of(list(map(normal_form, kernels))), (n_draws, N_CELLS, None)
    values, diagonals, *_ = jax.jit(
        lambda: redrawn_skce(key, terms, data, *options, NullSampler())
    )()
    return values, diagonals, jax.random.split(key)[0]


def forms(gram, cells, residuals):
    """sum_ab K_ab <G_a, G_b> of residuals ``[n, D, M]``."""
    sums = np.stack([residuals[cells == c].sum(axis=0) for c in range(N_CELLS)])
    return np.einsum("adm,ab,bdm->d", sums, gram, sums)


@pytest.mark.parametrize("m", [3, 40])
def test_labels_are_summed_over_the_cells_of_the_nearest_rows(m, key, float64):
    rng = np.random.default_rng(0)
    p, w = rng.dirichlet(np.ones(m), N), 10 ** rng.uniform(-2, 1, N)
    data = clean(as_data(cj.Categorical(jnp.asarray(p)), rng.integers(m, size=N), weights=w))
    kernel = cj.DistanceKernel(cj.TotalVariation(), LENGTHSCALE)
    kernels = [cj.TensorProduct(kernel, cj.WhiteKernel())]
    values, diagonals, draw_key = statistics(key, kernels, data, 30)

    distances = np.abs(p[:, None] - p[AT][None]).sum(axis=2) / 2
    numbers, batches = jnp.arange(N, dtype=jnp.int32), jnp.arange(1, dtype=jnp.int32)
    drawn = draw_batches(draw_key, data.predictions, numbers, batches)[:, :30]
    labels = np.concatenate([data.targets[:, None], drawn], axis=1)
    residuals = np.asarray(data.weights)[:, None, None] * (np.eye(m)[labels] - p[:, None])
    gram = np.exp(-distances[AT] / LENGTHSCALE)
    expected = forms(gram, distances.argmin(axis=1), residuals)
    np.testing.assert_allclose(values[0], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(diagonals[0], np.square(residuals[:, 0]).sum(), rtol=1e-9)


@pytest.mark.parametrize("is_quantiles", [False, True])
def test_a_pit_counts_by_its_cell_of_the_line(is_quantiles, key, float64):
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=N), rng.normal(size=N)
    levels = (0.1, 0.5, 0.8)
    predictions = cj.Normal(jnp.asarray(mean), jnp.ones(N))
    if is_quantiles:
        values = mean[:, None] + np.array([-1.3, 0.0, 0.8])[None]
        predictions = cj.Quantiles(jnp.asarray(values), levels).pit_distribution()
        y = rng.uniform(size=N)
    data = clean(as_data(predictions, jnp.asarray(y)))
    compared = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: p.location()), LENGTHSCALE)
    kernel = cj.PITKernel(compared, jnp.ones(2), "normal scores")
    values, _, draw_key = statistics(key, [kernel], data, 30)

    numbers, batches = jnp.arange(N, dtype=jnp.int32), jnp.arange(1, dtype=jnp.int32)
    u, above = (x[:, :30] for x in draw_pits(draw_key, numbers, batches, jnp.float64))
    observed = predictions.cdf(data.targets)
    u, above = (
        np.concatenate([x[:, None], z], axis=1) for x, z in ((observed, u), (1 - observed, above))
    )
    pieces = levels if is_quantiles else ()
    table = kernel.unit_feature().of_intervals(cells_of_line(np.float64, pieces))
    residuals = np.asarray(table)[
        np.asarray(cell_of_line(jnp.asarray(u), jnp.asarray(above), pieces))
    ]
    at = np.asarray(predictions.location())
    distances = np.abs(at[:, None] - at[AT][None])
    expected = forms(np.exp(-distances[AT] / LENGTHSCALE), distances.argmin(axis=1), residuals)
    np.testing.assert_allclose(values[0], expected, rtol=1e-9, atol=1e-9)


def test_cells_of_the_line():
    """Each number is in its cell, cells fill the line, and functions hardly vary in them."""
    cells, rng = cells_of_line(np.float32), np.random.default_rng(0)
    tail = np.append(10 ** rng.uniform(-28, -0.4, 1000), [0.0, 2.0**-100, 0.25, 0.5]).astype(
        np.float32
    )
    for u, above in ((tail, 1 - tail), (1 - tail, tail)):
        k = np.asarray(cell_of_line(jnp.asarray(u), jnp.asarray(above)))
        assert np.all((cells.low[k] <= u) & (u <= cells.high[k]))
        assert np.all((cells.above_high[k] <= above) & (above <= cells.above_low[k]))
    widths = np.asarray(cells.width(), np.float64)
    kernel = cj.PITKernel(lambda p, q: 1.0, jnp.ones(4), "normal scores")
    means = np.asarray(kernel.unit_feature().of_intervals(jax.tree.map(jnp.asarray, cells)))
    np.testing.assert_allclose(widths.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(widths @ means, 0, atol=1e-6)
    # Their means keep all but 2e-4 of the variance.
    np.testing.assert_allclose(widths @ np.square(means), 1, atol=2e-4)


def test_rows_that_no_landmark_resembles():
    """A kernel without a distance, which is 0 for all but equal predictions."""
    p = cj.Bernoulli(jnp.array([0.1, 0.2, 0.3]))
    points = cj.Bernoulli(jnp.array([0.3, 0.1]))
    landmarks = Landmarks(
        points, jnp.int32(3), lambda p, q: (p.probs == q.probs).astype(p.probs.dtype)
    )
    found = landmarks.cells(p, jnp.arange(3, dtype=jnp.int32), True)
    np.testing.assert_array_equal(found, [1, 2, 0])
