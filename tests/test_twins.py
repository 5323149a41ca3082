"""The same predictions in two families: every number must be the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import FAMILIES, cast
from marks import slow
from rules import row
from scipy import stats

import calibjax as cj
from calibjax.expectations import residual_product_tile

N = 6


def instance(family, n=N, seed=0):
    return cast(FAMILIES[family](n, seed))


def repeated(p, k=3):
    """K times the same component, [n, K]."""
    return jax.tree.map(lambda x: jnp.stack([x] * k, axis=1), p)


def permuted(p):
    order = np.array([2, 0, 1])
    return jax.tree.map(lambda x: x[:, order], p)


def unequal(n, k=3):
    return jnp.array(np.random.default_rng(5).dirichlet(np.ones(k), n))


def as_full(p):
    covariance = jax.vmap(jnp.diag)(jnp.square(p.scale_diag))
    return cj.MultivariateNormalFullCovariance(p.loc, covariance)


def as_vectors(p):
    return cj.MultivariateNormalFullCovariance(p.loc[:, None], jnp.square(p.scale)[:, None, None])


def truncated(p):
    """Counts as classes: all but 1e-17 of their probability."""
    probs = stats.poisson.pmf(np.arange(64), np.array(p.rate)[:, None])
    return cj.Categorical(jnp.array(probs / probs.sum(1, keepdims=True)))


def repeated_samples(p):
    """Weights 2/6, 1/6, 3/6 by repetition."""
    return cj.Empirical(p.samples[:, np.array([0, 0, 1, 2, 2, 2])])


def weighted_samples(p):
    return cj.Empirical(p.samples[:, :3], jnp.tile(jnp.array([[2.0, 1, 3]]) / 6, (N, 1)))


def points(p):
    """A mixture of certain predictions."""
    return cj.Mixture.ensemble(cj.Empirical(p.samples[..., None]))


def same(p):
    return p


def tensor(kernel_of_targets, distance):
    return cj.TensorProduct(cj.DistanceKernel(distance, 0.7), kernel_of_targets)


GAUSSIAN, WHITE = cj.GaussianKernel(0.8), cj.WhiteKernel()
MMD = cj.MeanEmbeddingDistance(GAUSSIAN)
W2, MW2 = cj.Wasserstein(), cj.MixtureWasserstein()

# A family, two ways to write its predictions, and a kernel for each.
TWINS = {
    "equal components, any weights": (
        "normal",
        lambda p: cj.Mixture(unequal(N), repeated(p)),
        same,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, W2),
    ),
    "an ensemble of one": (
        "full",
        lambda p: cj.Mixture.ensemble(repeated(p, 1)),
        same,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, W2),
    ),
    "equal Laplace components": (
        "laplace",
        lambda p: cj.Mixture.ensemble(repeated(p)),
        same,
        tensor(cj.LaplacianKernel(0.9), MW2),
        tensor(cj.LaplacianKernel(0.9), W2),
    ),
    "equal weights, seen or not": (
        "mixture",
        lambda p: cj.Mixture.ensemble(p.components),
        lambda p: cj.Mixture(jnp.full((N, 3), 1 / 3), p.components),
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, MW2),
    ),
    "permuted components": (
        "mixture",
        same,
        permuted,
        tensor(GAUSSIAN, MW2),
        tensor(GAUSSIAN, MW2),
    ),
    "permuted components of an ensemble": (
        "ensemble",
        permuted,
        lambda p: cj.Categorical(jnp.mean(p.components.probs, axis=1)),
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
        tensor(WHITE, cj.Euclidean()),
    ),
    "diagonal covariance": ("diag", as_full, same, tensor(GAUSSIAN, W2), tensor(GAUSSIAN, W2)),
    "diagonal covariance, MMD": (
        "diag",
        as_full,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "vectors of length one": (
        "normal",
        as_vectors,
        same,
        tensor(GAUSSIAN, W2),
        tensor(GAUSSIAN, W2),
    ),
    "counts as classes, White": (
        "poisson",
        truncated,
        same,
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
        tensor(WHITE, cj.MeanEmbeddingDistance(WHITE)),
    ),
    "counts as classes, Gaussian": (
        "poisson",
        truncated,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "repeated samples": (
        "empirical",
        weighted_samples,
        repeated_samples,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
    "a mixture of points": (
        "empirical",
        points,
        same,
        tensor(GAUSSIAN, MMD),
        tensor(GAUSSIAN, MMD),
    ),
}


FAST = {
    "diagonal covariance",
    "counts as classes, White",
    "repeated samples",
    "permuted components of an ensemble",
}


@pytest.mark.parametrize("name", slow(TWINS.keys() - FAST, TWINS))
def test_twins(name, float64):
    family, one, other, kernel, other_kernel = TWINS[name]
    p, y = instance(family)

    def h(predictions, kernel):
        targets = y[:, None] if predictions.target_shape == "n d" and y.ndim == 1 else y
        return cj.h_matrix(cast(kernel), predictions, targets)

    found, expected = h(one(p), kernel), h(other(p), other_kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_samples_are_near_their_law(key, float64):
    # Both primitives with 10^4 draws, within four standard errors.
    n_draws, kernel = 10_000, cj.GaussianKernel(0.8)
    p, y = instance("normal", 2)
    draws = p.sample(key, (n_draws,)).T

    @jax.jit
    def primitives(p):
        one, other = row(p, 0), row(p, 1)
        return cj.mean_embedding(one, kernel, y[0]), cj.inner_product(one, kernel, other)

    def standard_error(values):
        return jnp.std(values) / np.sqrt(n_draws)

    def embedding(p, at):
        return jax.vmap(lambda z: cj.mean_embedding(p, kernel, z))(at)

    found, expected = primitives(cj.Empirical(draws)), primitives(p)
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
