"""CRPS, PIT and quantiles of Student t and of quantile forecasts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from instances import cast
from marks import fast_in_float64
from scipy import integrate, special, stats

import calibjax as cj
from calibjax.scores._scores import crps_of_numbers

# tests/test_scores.py and tests/test_cdf.py have the same formulas once.
DFS = np.array([0.3, 0.6, 0.95, 1.0, 1.2, 3.0, 40.0, 1e4, 1e8])


@jax.jit
def computed(p, y, level):
    return p.cdf(y), p.quantile(level), cj.crps(p, y)


def _student(df):
    return cj.StudentT(df, np.full(df.size, 0.5), np.full(df.size, 2.0))


@pytest.mark.parametrize("t", [-1e4, -3.0, 0.0, 0.7, 40.0])
@fast_in_float64
def test_student_t(t, dtype):
    p = cast(_student(DFS), dtype)
    y = p.loc + p.scale * jnp.asarray(t, dtype)
    level = jnp.full(9, 0.999)
    cdf, quantiles, scores = computed(p, y, level.astype(dtype))
    rtol = {"float32": 5e-6, "float64": 2e-13}[dtype]
    df, t = np.array(p.df, float), ((np.array(y, float) - 0.5) / 2)
    # SciPy has no digits in the far tail of many degrees of freedom.
    np.testing.assert_allclose(cdf, stats.t(df).cdf(t), rtol=rtol, atol=1e-30)
    expected = 0.5 + 2 * stats.t(df).ppf(float(np.asarray(0.999, dtype)))
    # The relative error of the tail, divided by df.
    np.testing.assert_allclose(quantiles, expected, rtol=4 * rtol)
    # The score is infinite for df <= 1/2, and the formula of scoringrules needs df > 1.
    assert scores[0] == jnp.inf
    expected = [float(scoringrules.crps_t(z, n)) for z, n in zip(t[4:8], df[4:8], strict=True)]
    np.testing.assert_allclose(scores[4:8], 2 * np.array(expected), rtol=max(rtol, 1e-11))
    # With many degrees of freedom it has few digits, and the law is normal.
    normal = float(scoringrules.crps_normal(t[8], 0.0, 1.0))
    np.testing.assert_allclose(scores[8], 2 * normal, rtol=max(rtol, 1e-7))
    # At df = 1 that formula is 0 / 0; near it, and below it, quadrature is independent.
    near_one = slice(2, 5)
    by_quadrature = jax.jit(crps_of_numbers)(p[near_one], y[near_one])
    np.testing.assert_allclose(scores[near_one], by_quadrature, rtol=max(rtol, 1e-9))


def test_derivatives_in_the_degrees_of_freedom(float64):
    df = np.array([0.4, 0.8, 1.0, 1.05, 2.0, 30.0])
    y = jnp.array([0.5, -3.0, 0.6, 7.0, 0.5, 2.0])

    @jax.jit
    def values(df):
        p = _student(df)
        return p.cdf(y), p.quantile(0.3), jnp.where(df > 0.5, cj.crps(p, y), 0.0)

    step = 1e-5
    sides = [values(jnp.array(df * (1 + s))) for s in (step, -step)]
    _, tangents = jax.jit(lambda df: jax.jvp(values, (df,), (df,)))(jnp.array(df))
    for tangent, up, down in zip(tangents, *sides, strict=True):
        np.testing.assert_allclose(tangent, (up - down) / (2 * step), rtol=1e-7, atol=1e-8)
    # F of a standard variable from SciPy, which has no derivative either.
    t = (np.array(y) - 0.5) / 2
    slopes = (special.stdtr(df * (1 + 1e-4), t) - special.stdtr(df * (1 - 1e-4), t)) / 2e-4
    np.testing.assert_allclose(tangents[0], slopes, rtol=1e-6, atol=1e-10)


def test_student_t_at_the_ends_of_float32():
    df, t = (x.ravel() for x in np.meshgrid([1e-30, 1e-3, 3, 1e20, 1e38], [1, 1e3, 1e20, 1e38]))
    p = cj.StudentT(jnp.asarray(df, jnp.float32), jnp.zeros(df.size), 1.0)
    found = jax.jit(lambda p, y: p.cdf(y))(p, jnp.asarray(-t, jnp.float32))
    np.testing.assert_allclose(found, stats.t.cdf(-t, df), rtol=1e-5, atol=1e-12)


# Quantile forecasts.

LEVELS = (0.05, 0.3, 0.5, 0.9)
VALUES = np.array([[-1.0, 0.0, 0.4, 3.0], [0.0, 0.0, 1.0, 2.0], [1.0, 2.0, 2.0, 5.0]])


def quantile_law(values):
    """The cdf of a row by interpolation, with the tails of the docstring."""
    slopes = np.diff(values) / np.diff(LEVELS)
    first, last = slopes[0] * LEVELS[0], slopes[-1] * (1 - LEVELS[-1])

    def cdf(x):
        if x < values[0]:
            return LEVELS[0] * np.exp((x - values[0]) / first) if first > 0 else 0.0
        if x > values[-1]:
            return 1 - (1 - LEVELS[-1]) * np.exp((values[-1] - x) / last)
        return np.interp(x, values, LEVELS)

    return cdf


@pytest.mark.parametrize("target", [-2.0, -0.5, 0.2, 2.5, 9.0])
@fast_in_float64
def test_crps_of_quantiles(target, dtype):
    p = cast(cj.Quantiles(VALUES, LEVELS), dtype)
    found = cj.crps(p, jnp.full(3, target, dtype))
    for score, values in zip(found, VALUES, strict=True):
        cdf = quantile_law(values)
        ends = [-60, *sorted({*values, target}), 120]
        expected = sum(
            integrate.quad(lambda x, cdf=cdf: (cdf(x) - (x >= target)) ** 2, a, b)[0]
            for a, b in zip(ends[:-1], ends[1:], strict=True)
        )
        np.testing.assert_allclose(score, expected, rtol=2e-6 if dtype == "float32" else 1e-8)


def test_gradients_of_the_crps_of_quantiles(float64):
    y = jnp.array([-0.3, 1.4, 8.0])

    def total(values, y):
        return jnp.sum(cj.crps(cj.Quantiles(values, LEVELS), y))

    values = jnp.array(VALUES) + jnp.array([0.0, 0.01, 0.02, 0.03])[None]
    by_values, by_y = jax.jit(jax.grad(total, (0, 1)))(values, y)
    step = 1e-6
    for index in np.ndindex(3, 4):
        sides = [total(values.at[index].add(s), y) for s in (step, -step)]
        np.testing.assert_allclose(by_values[index], (sides[0] - sides[1]) / (2 * step), atol=1e-8)
    expected = 2 * cj.Quantiles(values, LEVELS).cdf(y) - 1
    np.testing.assert_allclose(by_y, expected, rtol=1e-12)


def test_equal_quantiles_are_a_mass(float64):
    p = cast(cj.Quantiles(np.tile([0.0, 0.0, 1.0, 1.0], (4, 1)), LEVELS))
    y = jnp.array([0.0, 0.5, 1.0, 2.0])
    before, after = p.cdf_jump(y)
    # Without a slope beside it there is no tail: all that is below the first value is at it.
    np.testing.assert_allclose(before, [0, 0.4, 0.5, 1])
    np.testing.assert_allclose(after, [0.3, 0.4, 1, 1])
    np.testing.assert_array_equal([p.quantile(level)[0] for level in (0, 0.2, 1)], [0, 0, 1])


def test_pit_of_quantiles_with_a_mass_at_zero(key):
    # Rain: 40 % of the days are dry.
    levels = tuple(np.linspace(0.05, 0.95, 19))
    values = np.array([0.0 if u <= 0.4 else -np.log((1 - u) / 0.6) for u in levels])
    p = cast(cj.Quantiles(np.tile(values, (4000, 1)), levels), "float32")
    rng = np.random.default_rng(0)
    rain = rng.exponential(size=4000) * (rng.uniform(size=4000) > 0.4)
    u = np.array(cj.pit(key, p, jnp.asarray(rain, "float32")))
    # Pieces are linear, so that only the counts at the levels are exact.
    counts = np.histogram(u, [0, *np.round(levels[7:], 2), 1])[0]
    assert stats.chisquare(counts, 4000 * np.diff([0, *levels[7:], 1])).pvalue > 0.01
    wrong = np.array(cj.pit(key, p, jnp.asarray(1.3 * rain, "float32")))
    counts = np.histogram(wrong, [0, *np.round(levels[7:], 2), 1])[0]
    assert stats.chisquare(counts, 4000 * np.diff([0, *levels[7:], 1])).pvalue < 1e-6


ENDS = {
    "student_t": (lambda: _student(np.array([1.0, 5.0])), -np.inf, np.inf),
    "log_normal": (lambda: cj.LogNormal(np.zeros(2), np.ones(2)), 0.0, np.inf),
    "quantiles": (lambda: cj.Quantiles(VALUES[[0, 0]], LEVELS), -np.inf, np.inf),
}


@pytest.mark.parametrize("name", ENDS)
def test_levels(name):
    build, low, high = ENDS[name]
    p = cast(build(), "float32")
    quantile = jax.jit(lambda p, level: p.quantile(level))
    np.testing.assert_array_equal(quantile(p, jnp.array([0.0, 1.0])), [low, high])
    assert jnp.all(jnp.isnan(quantile(p, jnp.array([-0.1, 1.1]))))
    with pytest.raises(ValueError, match=r"level must be in \[0, 1\], got 1.5"):
        p.quantile(1.5)


LAWS = {
    "student_t": lambda n: _student(np.linspace(0.6, 30, n)),
    "log_normal": lambda n: cj.LogNormal(np.zeros(n), np.linspace(0.1, 2, n)),
}


@pytest.mark.parametrize("name", LAWS)
def test_pit_is_uniform(name, key):
    p = cast(LAWS[name](3000), "float32")
    y = jax.jit(functools.partial(type(p).sample, key=jax.random.key(3)))(p)
    assert stats.kstest(np.array(cj.pit(key, p, y)), "uniform").pvalue > 0.01


class Gumbel(cj.Univariate):
    """A user's family that is known by its quantiles alone."""

    loc: jax.Array
    scale: jax.Array

    def quantile(self, level):
        return self.loc - self.scale * jnp.log(-jnp.log(level))


def test_scores_from_quantiles_alone(float64):
    loc, scale = np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 3.0])
    y = np.array([0.7, -0.5, 9.0])
    p = Gumbel(jnp.array(loc), jnp.array(scale))

    @jax.jit
    def value_and_gradient(p, y):
        return jax.value_and_grad(lambda p, y: jnp.sum(cj.crps(p, y)), (0, 1))(p, y)

    # With Euler's constant g and the exponential integral Ei, the score of a standard Gumbel
    # variable is -z - 2 Ei(-exp(-z)) + g - log 2 (Friederichs and Thorarinsdottir, 2012).
    def score(loc, scale, y):
        z = (y - loc) / scale
        return scale * (-z - 2 * special.expi(-np.exp(-z)) + np.euler_gamma - np.log(2))

    value, (by_p, by_y) = value_and_gradient(p, jnp.array(y))
    np.testing.assert_allclose(value, np.sum(score(loc, scale, y)), rtol=1e-9)
    for found, i in ((by_p.loc, 0), (by_p.scale, 1), (by_y, 2)):
        sides = []
        for step in (1e-5, -1e-5):
            arguments = [loc, scale, y]
            arguments[i] = arguments[i] + step
            sides.append(score(*arguments))
        np.testing.assert_allclose(found, (sides[0] - sides[1]) / 2e-5, rtol=1e-7, atol=1e-9)


POSITIVE = {
    "gamma": (
        lambda: cj.Gamma(
            np.array([0.05, 0.5, 3.0, 90.0, 1e4]), np.array([1.0, 9.0, 0.1, 2.0, 1.0])
        ),
        lambda p, y: scoringrules.crps_gamma(y, p.concentration, p.rate),
    ),
    # By quadrature.
    "weibull": (
        lambda: cj.Weibull(
            np.array([0.4, 1.0, 2.0, 9.0, 30.0]), np.array([1.0, 5.0, 1e-3, 1.0, 1e4])
        ),
        None,
    ),
}


def crps_of_weibull(p, y):
    """y (2 F(y) - 1) + m (2^(-1/k) - 2 P(1 + 1/k, (y / scale)^k)) for the mean m."""
    k, hazard = p.concentration, (y / p.scale) ** p.concentration
    mean = p.scale * special.gamma(1 + 1 / k)
    rest = mean * (2 ** (-1 / k) - 2 * special.gammainc(1 + 1 / k, hazard))
    return y * (1 - 2 * np.exp(-hazard)) + rest


@pytest.mark.parametrize("level", [0.01, 0.6, 0.999])
@pytest.mark.parametrize("family", POSITIVE)
@fast_in_float64
def test_crps_of_positive_families(family, level, dtype):
    build, expected = POSITIVE[family]
    p = cast(build(), dtype)
    y = jax.jit(lambda p: p.quantile(level))(p)
    y = jnp.clip(y, 1e-6, 1 - 1e-6 if family == "beta" else None)
    rows = jax.tree.map(lambda x: np.array(x, float), p)
    expected = (expected or crps_of_weibull)(rows, np.array(y, float))
    # The incomplete gamma and beta functions of jax have 4 digits here in float32.
    rtol = {"float32": 5e-4, "float64": 1e-9}[dtype]
    np.testing.assert_allclose(cj.crps(p, y), expected, rtol=rtol)


def test_targets_beyond_equal_quantiles_are_impossible():
    p = cj.Quantiles(jnp.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), (0.1, 0.5, 0.9))
    assert cj.log_score(p, jnp.array([-1.0, 2.0])).tolist() == [np.inf, np.inf]
    assert cj.log_score(p, jnp.array([0.0, 1.0])).tolist() == pytest.approx([np.log(2.5), -np.inf])
