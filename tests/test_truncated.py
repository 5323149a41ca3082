"""Truncated predictions against SciPy and quadrature over the interval."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from marks import fast_in_float32, fast_in_float64
from scipy import stats

import calibjax as cj

INTERVALS = [(0.0, np.inf), (-1.0, 0.5), (-np.inf, -1.0), (1.0, 3.0), (2.0, np.inf)]


def intervals(dtype):
    low, high = (np.asarray(x, dtype) for x in zip(*INTERVALS, strict=True))
    return cj.Truncated(cj.Normal(np.zeros_like(low), np.ones_like(low)), low, high)


def legendre(law, low, high):
    """Points and weights of the law over its interval."""
    nodes, weights = np.polynomial.legendre.leggauss(300)
    half = (high - low) / 2
    points = low + half * (nodes + 1)
    return points, half * weights * law.pdf(points)


@fast_in_float32
def test_law_of_a_truncated_normal(dtype):
    p = intervals(dtype)
    rtol = 2e-5 if dtype == "float32" else 1e-12
    for level in (0.01, 0.5, 0.98):
        expected = np.array([stats.truncnorm(*ends).ppf(level) for ends in INTERVALS])
        found = call(p, "quantile", level)
        np.testing.assert_allclose(found, expected, rtol=rtol)
        np.testing.assert_allclose(call(p, "cdf", found), level, rtol=5 * rtol)
        density = [
            stats.truncnorm(*ends).logpdf(float(y))
            for ends, y in zip(INTERVALS, found, strict=True)
        ]
        np.testing.assert_allclose(call(p, "log_prob", found), density, rtol=rtol, atol=rtol)
    outside = np.array([-1e-3, 0.6, 0.0, 0.9, 1.9], dtype)
    np.testing.assert_array_equal(call(p, "log_prob", outside), -np.inf)
    np.testing.assert_array_equal(call(p, "cdf", outside), [0, 1, 1, 0, 0])
    np.testing.assert_array_equal(p.supports(outside)[1], False)


TAILS = [(2.5, np.inf), (4, np.inf), (5, 5.5), (10, 12), (11, np.inf), (-np.inf, -6), (-11, -10.5)]


def test_intervals_in_tails_have_all_digits():
    """Wind or rain whose mean is far below 0, in float32 against SciPy in float64."""
    low, high = (np.array(x, np.float32) for x in zip(*TAILS, strict=True))
    base = cj.Normal(np.zeros_like(low), np.ones_like(low))
    p = cj.Truncated(base, low, high)
    laws = [stats.truncnorm(*ends) for ends in TAILS]
    y = np.array([law.ppf(0.4) for law in laws], np.float32)

    @jax.jit
    def found(p, y):
        quantiles = [p.quantile(level) for level in (0.1, 0.99)]
        return *quantiles, p.mean(), p.spread(), p.cdf(y), p.survival(y), p.log_prob(y)

    expected = [
        [law.ppf(0.1) for law in laws],
        [law.ppf(0.99) for law in laws],
        [law.mean() for law in laws],
        [(law.ppf(stats.norm.cdf(1)) - law.ppf(stats.norm.cdf(-1))) / 2 for law in laws],
        [law.cdf(float(x)) for law, x in zip(laws, y, strict=True)],
        [law.sf(float(x)) for law, x in zip(laws, y, strict=True)],
        [law.logpdf(float(x)) for law, x in zip(laws, y, strict=True)],
    ]
    deviations = np.array([law.std() for law in laws])
    error = np.abs(np.array(found(p, y)) - expected)
    error[:4] /= deviations
    assert np.all(error < 2e-5)


@fast_in_float64
def test_expectations_and_moments(dtype):
    p = intervals(dtype)
    kernel, atol = cj.GaussianKernel(0.3), 1e-5 if dtype == "float32" else 1e-9
    y = call(p, "quantile", 0.3)
    found = jax.jit(jax.vmap(lambda p, y: cj.mean_embedding(p, kernel, y)))(p, y)
    mean, deviation = jax.jit(lambda p: (p.mean(), p.standard_deviation()))(p)
    for i, (low, high) in enumerate(INTERVALS):
        law = stats.truncnorm(low, high)
        points, weights = legendre(law, max(low, -9.0), min(high, 9.0))
        expected = weights @ np.exp(-(((points - float(y[i])) / 0.3) ** 2) / 2)
        np.testing.assert_allclose(found[i], expected, atol=atol)
        # In float32 a level near 1, of a quantile far out, has few digits.
        rtol = 1e-4 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(mean[i], law.mean(), rtol=rtol)
        np.testing.assert_allclose(deviation[i], law.std(), rtol=rtol)


@pytest.mark.slow
def test_a_base_with_quantiles_by_bisection(float64):
    gamma = cj.Gamma(jnp.array([2.5]), jnp.array([1.5]))
    p = cj.Truncated(gamma, 0.5, 2.0)
    of_base = stats.gamma(2.5, scale=1 / 1.5)
    mass = of_base.cdf(2.0) - of_base.cdf(0.5)
    points, weights = legendre(of_base, 0.5, 2.0)
    kernel, y = cj.GaussianKernel(0.2), jnp.array(0.9)
    found = jax.jit(cj.mean_embedding)(p[0], kernel, y)
    expected = weights @ np.exp(-(((points - 0.9) / 0.2) ** 2) / 2) / mass
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_derivatives(float64):
    kernel, y = cj.GaussianKernel(0.7), jnp.array(0.3)

    @jax.jit
    def value(x):
        p = cj.Truncated(cj.Normal(x[0], x[1]), x[2], x[3])
        return cj.mean_embedding(p, kernel, y) + cj.inner_product(p, kernel, p)

    x = jnp.array([0.1, 1.2, -0.8, 1.1])
    slopes = jax.jit(jax.grad(value))(x)
    for i, slope in enumerate(slopes):
        step = jnp.zeros(4).at[i].set(1e-5)
        np.testing.assert_allclose(slope, (value(x + step) - value(x - step)) / 2e-5, rtol=1e-7)


def test_improbable_intervals():
    def truncated(low):
        return cj.Truncated(cj.Normal(jnp.zeros(2), jnp.ones(2)), low, jnp.inf)

    with pytest.raises(ValueError, match="the interval has digits in float32; row 0 is inf"):
        cj.default_kernel(truncated(13.0))
    gammas = cj.Gamma(jnp.full(2, 2.0), jnp.ones(2))
    with pytest.raises(ValueError, match="the interval has digits in float32; row 1 is inf"):
        cj.default_kernel(cj.Truncated(gammas, jnp.array([9.0, 16.0]), jnp.inf))
    with pytest.raises(ValueError, match="low must be below high; row 0 is inf"):
        cj.default_kernel(truncated(jnp.inf))
    inside = jax.jit(lambda low: (truncated(low).log_prob(low + 1), truncated(low).quantile(0.5)))
    assert np.all(np.isnan(inside(13.0 * jnp.ones(2)))) and np.all(np.isfinite(inside(jnp.ones(2))))
    with pytest.raises(TypeError, match="base must be predictions of one real .* got Poisson"):
        cj.Truncated(cj.Poisson(jnp.ones(2)), 0.0, 1.0)


def test_a_support_that_is_traced():
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.EmbeddingDistance(low_end)), cj.GaussianKernel(1.0)
    )
    y = jnp.array([0.5, 1.0, 1.5])

    @jax.jit
    def loss(low):
        p = cj.Truncated(cj.Normal(jnp.zeros(3), jnp.ones(3)), low, 2.0)
        return cj.skce(kernel, p, y)

    assert jnp.isfinite(loss(jnp.zeros(3))) and jnp.isnan(loss(jnp.array([0.0, 1.1, 0.0])))


def low_end(p):
    return p.low
