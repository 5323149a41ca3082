"""Gamma and Weibull predictions against SciPy, and dense quadrature, of any concentration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from marks import fast_in_float32, fast_in_float64, slow
from scipy import special, stats

import calibjax as cj

# As float32 holds them.
NUMBERS = np.array([1e-5, 1e-3, 0.1, 0.5, 1.0, 2.0, 7.3, 100.0, 3e3, 1e5], "float32").astype(float)
LEVELS = np.array([1e-6, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999, 1 - 1e-6])

FAMILIES = {
    "gamma": (cj.Gamma, lambda a, rate: stats.gamma(a, scale=1 / rate), 1.75),
    "weibull": (cj.Weibull, lambda k, scale: stats.weibull_min(k, scale=scale), 0.25),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def arrays(*columns, dtype):
    return [np.array(x, dtype) for x in np.broadcast_arrays(*columns)]


@every_family
def test_likelihood_and_cdf(family, dtype):
    make, law, other = FAMILIES[family]
    x, level = (a.ravel() for a in np.meshgrid(NUMBERS, LEVELS))
    law = law(x, other)
    eps, tiny = float(jnp.finfo(dtype).eps), float(jnp.finfo(dtype).tiny)
    with np.errstate(over="ignore"):
        y = law.ppf(level).astype(dtype).astype(float)
    kept = (y > tiny) & (y < 1e30) & (y != 1)
    p = make(*arrays(x[kept], other, dtype=dtype))
    found, cdf = jax.jit(lambda p, y: (p.log_prob(y), p.cdf(y)))(p, y[kept].astype(dtype))
    assert found.dtype == cdf.dtype == dtype
    expected = law.logpdf(y)[kept]
    # An error of the target's last digit moves the value by the concentration times as much.
    scale = 1 + np.abs(expected) + np.sqrt(x[kept])
    assert np.max(np.abs(found - expected) / scale) < (30 if dtype == "float32" else 3e4) * eps
    law, y = FAMILIES[family][1](x[kept], other), y[kept]
    last_digit = law.pdf(y) * y * eps
    assert np.max(np.abs(cdf - law.cdf(y)) / (50 * eps + 2 * last_digit)) < 1


@every_family
def test_quantiles(family, float64):
    make, law, other = FAMILIES[family]
    x = NUMBERS[2:8]
    p = make(*arrays(x, other, dtype="float64"))
    quantile = jax.jit(lambda p, level: p.quantile(level))
    for level in (0.01, 0.5, 0.9):
        np.testing.assert_allclose(quantile(p, level), law(x, other).ppf(level), rtol=1e-8)
    slope = jax.jit(jax.grad(lambda s: jnp.sum(make(s * p.concentration, p.rate).quantile(0.3))))
    if family == "gamma":
        ahead, behind = (np.sum(law(s * x, other).ppf(0.3)) for s in (1 + 1e-5, 1 - 1e-5))
        np.testing.assert_allclose(slope(1.0), (ahead - behind) / 2e-5, rtol=1e-6)


@every_family
def test_moments(family, dtype):
    make, law, other = FAMILIES[family]
    x = NUMBERS[2:]
    p = make(*arrays(x, other, dtype=dtype))
    rtol = 3e-5 if dtype == "float32" else 1e-9
    mean, deviation = (np.array(call(p, method)) for method in ("mean", "standard_deviation"))
    np.testing.assert_allclose(mean, law(x, other).mean(), rtol=rtol)
    expected = law(x, other).std()
    if family == "weibull":  # for which SciPy's differences cancel
        expected = np.where(x > 1e3, np.pi / np.sqrt(6) / x * mean, expected)
        rtol = np.where(x > 1e3, 1e-3, rtol)
    assert np.all(np.abs(deviation / expected - 1) < rtol)


# Expectations.


def dense_rule(family, a, b):
    """Points and weights on a dense grid of a logarithm, and what is missing at 0."""
    t, step = np.linspace(-400, 60, 920_001 if max(a, b) > 100 else 92_001, retstep=True)
    if family == "weibull":
        return np.exp(t / a) * b, np.exp(t - np.exp(np.minimum(t, 50))) * step
    points, log_density = np.exp(t), a * t - np.exp(t) - special.gammaln(a)
    weights = np.exp(log_density) * step
    kept = weights > 1e-30
    ends = [0.0], [1 - weights.sum() if a < 0.1 else 0.0]
    return np.append(ends[0], points[kept] / b), np.append(ends[1], weights[kept])


# The largest error of E k(Y, y) over y, for lengthscales of 1.4 and 0.5 standard deviations: where
# the tail is long, 64 points are not enough for a narrow kernel.
CASES = {
    ("gamma", 1e-5, 1.0): (2e-7, 1e-7),
    ("gamma", 0.01, 1.0): (5e-6, 2e-4),
    ("gamma", 0.1, 1.0): (3e-9, 5e-5),
    ("gamma", 0.5, 2.0): (1e-9, 5e-7),
    ("gamma", 1.0, 2.0): (1e-8, 2e-8),
    ("gamma", 2.0, 1.0): (2e-9, 3e-9),
    ("gamma", 5.0, 0.2): (1e-10, 1e-10),
    ("gamma", 1e3, 1.0): (1e-10, 1e-10),
    ("gamma", 1e5, 1e5): (1e-10, 1e-10),
    ("weibull", 1.0, 2.0): (5e-8, 5e-8),
    ("weibull", 2.5, 1.0): (2e-9, 2e-9),
    ("weibull", 20.0, 1.0): (1e-10, 1e-10),
}
FAST = {(0.01, 1.0), (1.0, 2.0), (1e3, 1.0), (1e5, 1e5)}
SLOW = {case for case in CASES if case[1:] not in FAST}


@fast_in_float64
@pytest.mark.parametrize(("family", "first", "second"), slow(SLOW, CASES))
def test_expectations(family, first, second, dtype):
    numbers = first, second
    make, law, _ = FAMILIES[family]
    points, weights = dense_rule(family, *numbers)
    deviation = np.sqrt(weights @ points**2 - (weights @ points) ** 2)
    y = law(*numbers).ppf(LEVELS)
    y = np.append(y, (y[1:] + y[:-1]) / 2)

    @jax.jit
    def embedding(p, y, lengthscale):
        kernel = cj.GaussianKernel(lengthscale)
        return jax.vmap(lambda y: cj.mean_embedding(p, kernel, y))(y)

    p = make(*arrays(*numbers, dtype=dtype))
    for scale, bound in zip([1.4, 0.5], CASES[family, *numbers], strict=True):
        if dtype == "float32":
            # The points are rounded, which is some part of a narrow law.
            bound = max(3e-6, 2 * bound, 1e-6 * float(np.abs(y).max()) / deviation)
        lengthscale = scale * deviation
        found = embedding(p, *arrays(y, dtype=dtype), *arrays(lengthscale, dtype=dtype))
        expected = [weights @ np.exp(-(((points - z) / lengthscale) ** 2) / 2) for z in y]
        assert np.max(np.abs(found - np.array(expected))) < bound


@fast_in_float32
@every_family
def test_weights_sum_to_one_for_any_concentration(family, dtype):
    make, _, _ = FAMILIES[family]
    first, second = (x.ravel() for x in np.meshgrid(NUMBERS, NUMBERS))
    p = make(*arrays(first, second, dtype=dtype))

    @jax.jit
    def atoms(p):
        points, weights = jax.vmap(lambda p: p.atoms())(p)
        sums = jnp.sum(weights, 1), jnp.sum(points * weights, 1)
        return points, weights, *sums, p.supports(points[:, 0])[1], p.mean(), p.spread()

    points, weights, total, found, supported, mean, spread = map(np.array, atoms(p))
    assert np.all(np.isfinite(points)) and np.all(points > 0)
    assert np.all(supported)
    np.testing.assert_allclose(total, 1, atol=3e-6 if dtype == "float32" else 1e-12)
    assert np.min(weights) > (-3e-6 if dtype == "float32" else -1e-9)
    if family != "weibull":
        rounding = float(jnp.finfo(dtype).eps) * mean * 100
        slack = (2e-5 if dtype == "float32" else 1e-7) * spread + rounding
        assert np.all(np.abs(found.astype(float) - mean) < slack)


DERIVATIVES = {
    "gamma": [(0.05, 1.3), (0.7, 2.0), (1.0, 1.0), (2.0, 0.5), (200.0, 100.0)],
    "weibull": [(0.6, 1.0), (1.0, 2.0), (5.0, 3.0)],
}


@pytest.mark.slow
@every_family
def test_derivatives(family, float64):
    make, kernel, y = FAMILIES[family][0], cj.GaussianKernel(0.7), jnp.array(0.3)

    @jax.jit
    def value_and_slopes(a, b):
        def value(a, b):
            p = make(a, b)
            return cj.mean_embedding(p, kernel, y) + cj.inner_product(p, kernel, make(2.1 * a, b))

        return jax.value_and_grad(value, (0, 1))(a, b)

    for numbers in DERIVATIVES[family]:
        _, slopes = value_and_slopes(*numbers)
        for i, slope in enumerate(slopes):
            # One-sided where the rule has another form on the other side.
            def at(k, i=i, numbers=numbers):
                moved = list(numbers)
                moved[i] *= 1 + 1e-3 * k
                return float(value_and_slopes(*moved)[0])

            expected = (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / 12e-3 / numbers[i]
            np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)


# Draws and calibration.


@pytest.mark.slow
def test_extreme_draws_and_targets(key):
    tiny, huge = jnp.array([1e-5, 1e-3]), jnp.array([1e5, 1e8])
    for make, _, _ in FAMILIES.values():
        for p in (make(tiny, tiny), make(huge, huge), make(tiny, huge), make(huge, tiny)):
            draws = p.sample(key, (50,))
            assert jnp.all(p.supports(draws)[1])
        assert jnp.all(make(tiny, tiny).log_prob(jnp.array([-1.0, 0.0])) == -jnp.inf)
