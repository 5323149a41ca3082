"""P(Y > y) of all families with a cdf, from the middle of the law to 1e-30, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from instances import FAMILIES, cast, normal_of
from marks import fast_in_float32
from scipy import stats

import calibjax as cj

LEVELS = np.array([0.9, 0.5, 1e-2, 1e-5, 1e-10, 1e-15, 1e-20, 1e-25, 1e-30])
VECTORS = {"diag", "full", "empirical_vectors"}


def _of_family(family, law):
    """An instance of FAMILIES at the upper quantiles of its law, and the upper tail of the law."""

    def case():
        p, _ = FAMILIES[family](len(LEVELS), 0)
        return p, law(p).isf(LEVELS), lambda p, y: law(p).sf(y)

    return case


def _of_counts(family, law):
    """The same for counts, whose upper quantiles SciPy finds in the lower tail."""

    def case():
        p, _ = FAMILIES[family](len(LEVELS), 0)
        counts = np.arange(1000)[:, None]
        return p, np.sum(law(p).sf(counts) > LEVELS, axis=0), lambda p, y: law(p).sf(y)

    return case


def _negative_binomial(p):
    return stats.nbinom(p.concentration, p.concentration / (p.concentration + p.mu))


def _binomial():
    total, p = np.full(len(LEVELS), 100.0), np.linspace(0.02, 0.4, len(LEVELS))
    counts = np.arange(100)[:, None]
    y = np.sum(stats.binom.sf(counts, total, p) > LEVELS, axis=0)
    return cj.Binomial(total, p), y, lambda p, y: stats.binom(p.total, p.probs).sf(y)


def _quantiles():
    """The exponential tail above the last level, with the density of the piece beside it."""
    p, _ = FAMILIES["quantiles"](len(LEVELS) - 1, 0)
    rest = 1 - p.levels[-1]

    def scale(p):
        return rest * (p.values[:, -1] - p.values[:, -2]) / (p.levels[-1] - p.levels[-2])

    y = p.values[:, -1] - scale(p) * np.log(LEVELS[1:] ** 1.01 / rest)
    y[:2] = (p.values[:2, 1] + p.values[:2, 2]) / 2

    def survival(p, y):
        inside = stats.uniform(p.values[:, -2], p.values[:, -1] - p.values[:, -2]).sf(y)
        inside = rest + (p.levels[-1] - p.levels[-2]) * inside
        return np.where(
            y < p.values[:, -1], inside, rest * np.exp((p.values[:, -1] - y) / scale(p))
        )

    return p, y, survival


def _survival_curve():
    """Curves that fall to each level at the last time, half of the way from 1 before it."""
    last = np.linspace(1.0, 2.0, len(LEVELS))
    p = cj.SurvivalCurve(last[:, None] * [0.5, 1], np.stack([(1 + LEVELS) / 2, LEVELS], 1))
    y = np.where(np.arange(len(LEVELS)) % 3 == 1, 0.7, 1.1) * last

    def survival(p, y):
        rows = zip(p.times, p.probs, y, strict=True)
        return np.array([np.interp(z, [0, *t], [1, *s]) for t, s, z in rows])

    return p, y, survival


def _mixture():
    p, _ = FAMILIES["mixture"](len(LEVELS), 0)
    y = stats.norm(p.components.loc, p.components.scale).isf(LEVELS[:, None]).max(axis=1)

    def survival(p, y):
        tails = stats.norm(p.components.loc, p.components.scale).sf(y[:, None])
        return np.sum(p.weights * tails, axis=1) / np.sum(p.weights, axis=1)

    return p, y, survival


RARE = np.array([[0.5, 0.5 - 1e-8, 1e-8, 1e-30], [0.1, 0.9, 1e-20, 2e-30], [0.3, 0.4, 0.2, 0.1]])


def _above(values, weights, y):
    return np.sum(np.where(values > y[:, None], weights, 0), axis=1) / np.sum(weights, axis=1)


def _classes(family):
    y = np.array([2, 1, -1])
    return family(RARE), y, lambda p, y: _above(np.arange(4), p.probs, y)


def _ensemble():
    components = cj.Categorical(np.stack([RARE, RARE[:, [2, 1, 0, 3]]], axis=1))
    return (
        cj.Mixture.ensemble(components),
        np.array([2, 0, 1]),
        lambda p, y: _above(np.arange(4), p.components.probs.mean(axis=1), y),
    )


def _empirical():
    samples = np.tile([3.0, 1.0, 2.0, 4.0], (3, 1))
    y = np.array([3.5, 3.0, 0.0])
    return cj.Empirical(samples, RARE), y, lambda p, y: _above(p.samples, p.weights, y)


def _empirical_missing():
    p, y, survival = _empirical()
    where = np.pad(np.ones((3, 4), bool), ((0, 0), (1, 0)))
    samples, weights = (np.pad(x, ((0, 0), (1, 0))) for x in (p.samples, p.weights))
    return cj.Empirical(np.where(where, samples, np.nan), 3 * weights, where=where), y, survival


def _empirical_draws():
    p, y = FAMILIES["empirical_draws"](4, 0)
    return p, y, lambda p, y: _above(p.samples, np.ones_like(p.samples), y)


CASES = {
    "bernoulli": lambda: (
        cj.Bernoulli(np.array([1e-30, 0.3, 0.3, 0.3])),
        np.array([0, 0, 1, -1]),
        lambda p, y: stats.bernoulli(p.probs).sf(y),
    ),
    "categorical": lambda: _classes(cj.Categorical),
    "ordinal": lambda: _classes(cj.Ordinal),
    "ensemble": _ensemble,
    "empirical": _empirical,
    "empirical_missing": _empirical_missing,
    "empirical_draws": _empirical_draws,
    "quantiles": _quantiles,
    "survival_curve": _survival_curve,
    "mixture": _mixture,
    "negative_binomial": _of_counts("negative_binomial", _negative_binomial),
    "poisson": _of_counts("poisson", lambda p: stats.poisson(p.rate)),
    "binomial": _binomial,
    "normal": _of_family("normal", lambda p: stats.norm(p.loc, p.scale)),
    "recalibrated": _of_family("recalibrated", normal_of),
    "laplace": _of_family("laplace", lambda p: stats.laplace(p.loc, p.scale)),
    "log_normal": _of_family("log_normal", lambda p: stats.lognorm(p.scale, 0, np.exp(p.loc))),
    "student_t": _of_family("student_t", lambda p: stats.t(p.df, p.loc, p.scale)),
    "gamma": _of_family("gamma", lambda p: stats.gamma(p.concentration, 0, 1 / p.rate)),
    "weibull": _of_family("weibull", lambda p: stats.weibull_min(p.concentration, 0, p.scale)),
}


def test_every_family_with_a_cdf_is_a_case():
    assert CASES.keys() == FAMILIES.keys() - VECTORS


@jax.jit
def _survival_and_slopes(p, y):
    slopes = jax.grad(lambda p: jnp.sum(p.survival(y)), allow_int=True)(p)
    return p.survival(y), [x for x in jax.tree.leaves(slopes) if x.dtype != jax.dtypes.float0]


@pytest.mark.parametrize("family", CASES)
@fast_in_float32
def test_far_tail(family, dtype):
    p, y, survival = CASES[family]()
    p, y = cast((p, y), dtype)
    if p.target_kind == "integer":
        y = y.astype(jnp.int32)
    found, slopes = _survival_and_slopes(p, y)
    p, y = jax.tree.map(lambda x: np.asarray(x, float), (p, y))
    expected = survival(p, y)
    assert found.dtype == dtype
    assert np.min(expected) < 1e-29 or family in {"quantiles", "empirical_draws"}
    # The error of a number in the exponent, which is up to 70, is that of its digits.
    rtol = {"float32": 2e-5, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(found, expected, rtol=rtol)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slopes))


SMALL = np.array([1e-5, 0.02, 0.7, 1.0, 1.3, 20.0, 400.0, 1e5], "float32").astype(float)


@pytest.mark.parametrize("family", ["gamma"])
@fast_in_float32
def test_both_tails_of_any_concentration(family, dtype):
    """The thinner tail has all its digits, but for what the last digit of a target decides."""
    limits, digits = jnp.finfo(dtype), {"float32": 20, "float64": 100}[dtype]
    make, law = {"gamma": (cj.Gamma, stats.gamma)}[family]
    a, b, level = (x.ravel() for x in np.meshgrid(SMALL, SMALL, LEVELS[1:]))
    if family == "gamma":
        b = np.zeros_like(b)  # for SciPy the origin of the targets
    for method in ("cdf", "survival"):
        y = (law(a, b).ppf if method == "cdf" else law(a, b).isf)(level).astype(dtype).astype(float)
        gap = y if family == "gamma" else np.minimum(y, 1 - y)
        kept = (y > limits.tiny) & (gap > 0)
        p = cast(make(a[kept], 1 + b[kept] if family == "gamma" else b[kept]), dtype)
        found = call(p, method, y[kept].astype(dtype))
        exact, y, gap = law(a[kept], b[kept]), y[kept], gap[kept]
        expected = exact.cdf(y) if method == "cdf" else exact.sf(y)
        log_expected = np.log(np.maximum(expected, float(limits.tiny)))
        allowed = digits * (1 - log_expected) * expected + 2 * exact.pdf(y) * gap
        error = np.abs(found - expected) / (allowed * float(limits.eps) + float(limits.tiny))
        thinner = expected < 0.6
        assert np.max(error[thinner]) < 1


def test_slopes(float64):
    """In the parameters, against differences; the slopes of `cdf` have tests of their own."""
    a, y = np.array([0.3, 2.0, 700.0]), np.array([2.0, 1.5, 800.0])
    slopes = jax.jit(jax.grad(lambda p, y: jnp.sum(p.survival(y))))
    found = slopes(cj.Gamma(a, np.ones(3)), y)
    sides = [stats.gamma.sf(y, a * (1 + step)) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(found.concentration, (sides[0] - sides[1]) / (2e-5 * a), rtol=1e-6)
    np.testing.assert_allclose(found.rate, -y * stats.gamma.pdf(y, a), rtol=1e-10)

    m, r, count = np.array([0.1, 0.5, 30.0]), np.array([2.0, 0.7, 500.0]), np.array([0, 3, 80])
    found = slopes(cj.NegativeBinomial(m, r), count)
    for name, at, of in [("mu", m, lambda x: (x, r)), ("concentration", r, lambda x: (m, x))]:
        sides = [
            stats.nbinom.sf(count, of(x)[1], of(x)[1] / sum(of(x)))
            for x in (at * (1 + 1e-5), at * (1 - 1e-5))
        ]
        expected = (sides[0] - sides[1]) / (2e-5 * at)
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-6, atol=1e-13)

    # At mean 0 it is P(Y = count), like that of the Poisson law.
    count, zeros = np.array([-1, 0, 1]), np.zeros(3)
    for p in (cj.Poisson(zeros), cj.NegativeBinomial(zeros, np.full(3, 2.0))):
        np.testing.assert_array_equal(call(p, "survival", count), [1, 0, 0])
        np.testing.assert_allclose(jax.tree.leaves(slopes(p, count))[0], [0, 1, 0])
