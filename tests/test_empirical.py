"""Draws that stand for a law: labels, counts, weights, and many of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from messages import check_message
from rules import row

import calibjax as cj
from calibjax.expectations.dispatch import residual_product_tile

N = 6
RNG = np.random.default_rng(20240817)
DRAWS = RNG.integers(3, size=(N, 5))
LABELS = RNG.integers(3, size=N)


def test_integers_are_no_samples():
    check_message(
        lambda: cj.Empirical(jnp.array(DRAWS)),
        TypeError,
        r"samples must be floating-point.*got dtype int.*counts.*astype\(float\).*labels.*one_hot"
        r".*Categorical\(jax.nn.one_hot\(samples, m\).mean\(axis=1\)\)",
    )
    counts = cj.Empirical(jnp.array(DRAWS).astype(float))
    np.testing.assert_allclose(counts.mean(), DRAWS.mean(1), rtol=1e-6)


def frequencies(p):
    return p.samples.mean(0)


def probabilities(p):
    return p.probs


def test_one_hot_draws_are_labels(float64):
    # |e_y - e_z|^2 is 2 for different labels: the Gaussian kernel is a constant, which no SKCE
    # sees, plus a multiple of the white kernel.
    draws, labels = (jax.nn.one_hot(x, 3) for x in (DRAWS, LABELS))

    def kernel(embedding, target_kernel):
        distance = cj.EmbeddingDistance(embedding)
        return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)

    found = cj.skce(kernel(frequencies, cj.GaussianKernel(0.8)), cj.Empirical(draws), labels)
    classes = cj.Categorical(draws.mean(axis=1))
    expected = cj.skce(kernel(probabilities, cj.WhiteKernel()), classes, jnp.array(LABELS))
    np.testing.assert_allclose(found, (1 - np.exp(-1 / 0.8**2)) * expected, rtol=1e-12)


def instance(family, n=N, seed=0):
    return cast(FAMILIES[family](n, seed))


@pytest.mark.slow
def test_samples_are_near_their_distribution(key, float64):
    # Both primitives with 10^4 draws, within four standard errors.
    n_draws, kernel = 10_000, cj.GaussianKernel(0.8)
    p, y = instance("normal", 2)
    draws = p.sample(key, (n_draws,)).T

    @jax.jit
    def primitives(one, other):
        return cj.mean_embedding(one, kernel, y[0]), cj.inner_product(one, kernel, other)

    def standard_error(values):
        return jnp.std(values) / np.sqrt(n_draws)

    def embedding(p, at):
        return jax.vmap(lambda z: cj.mean_embedding(p, kernel, z))(at)

    found, expected = (primitives(row(q, 0), row(q, 1)) for q in (cj.Empirical(draws), p))
    values = jnp.exp(-jnp.square((draws[0] - y[0]) / 0.8) / 2)
    assert abs(found[0] - expected[0]) < 4 * standard_error(values)
    # The second varies with the draws of both, each seen through the embedding of the other.
    errors = (
        standard_error(embedding(row(p, 0), draws[1])),
        standard_error(embedding(row(p, 1), draws[0])),
    )
    assert abs(found[1] - expected[1]) < 4 * jnp.hypot(*errors)


@pytest.mark.parametrize("n_samples", [1, 63, 64, pytest.param(700, marks=pytest.mark.slow)])
def test_chunks_of_samples(n_samples, float64):
    # 700 samples are more than are held at a time for 48^2 pairs.
    n, kernel = 48, cj.LaplacianKernel(1.3)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, n_samples)), rng.normal(size=n)
    w = rng.dirichlet(np.ones(n_samples), n)
    p = cj.Empirical(jnp.array(x), jnp.array(w))

    @jax.jit
    def chosen(p, y):
        tile = residual_product_tile(p, kernel, y, p, y)
        return tile[3, 5], tile[7, 7], jnp.sum(tile)

    def direct(i, j):
        points = [np.append(y[k], x[k]) for k in (i, j)]
        weights = [np.append(1, -w[k]) for k in (i, j)]
        distances = np.abs(points[0][:, None] - points[1][None])
        return weights[0] @ np.exp(-distances / 1.3) @ weights[1]

    found = chosen(p, jnp.array(y))
    np.testing.assert_allclose(found[:2], [direct(3, 5), direct(7, 7)], rtol=1e-10, atol=1e-14)
    if n_samples < 64:
        total = sum(direct(i, j) for i, j in np.ndindex(n, n))
        np.testing.assert_allclose(found[2], total, rtol=1e-10)


KEY = jax.random.key(0)


def test_numpy_samples_inside_jit():
    samples = np.arange(20, dtype="float32").reshape(4, 5)
    assert jax.jit(lambda key: cj.Empirical(samples).sample(key))(KEY).shape == (4,)
