"""The cdf and the quantiles of all families, against SciPy and finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from instances import FAMILIES, cast, normal_of
from marks import fast_in_float32, fast_in_float64, slow
from scipy import stats

import calibjax as cj
from calibjax._data.capabilities import OwnPIT
from calibjax._data.interval_censored import unit_interval
from calibjax._numbers.unit_interval import smallest_count_with

VECTORS = {"diag", "full", "empirical_vectors"}
UNIVARIATE = sorted(FAMILIES.keys() - VECTORS)
# Their own files have the same evidence.
SLOW = {"log_normal", "weibull", "recalibrated"}
# jax's incomplete gamma function has the largest error.
RTOL = {"float32": 5e-6, "float64": 1e-13}


def empirical_cdf(p, y):
    return np.mean(p.samples <= y[:, None], 1, where=True if p.where is None else p.where)


def classes_cdf(probs, y):
    return np.array([row[: c + 1].sum() for row, c in zip(probs, y, strict=True)])


def mixture_cdf(p, y):
    values = stats.norm(p.components.loc, p.components.scale).cdf(y[:, None])
    return np.sum(p.weights * values, 1)


def negative_binomial(p):
    return stats.nbinom(p.concentration, p.concentration / (p.concentration + p.mu))


def quantiles_cdf(p, y):
    return np.array([of_quantiles(v, p.levels, z) for v, z in zip(p.values, y, strict=True)])


def of_quantiles(values, levels, y):
    slopes = np.diff(values) / np.diff(levels)
    if y < values[0]:
        return levels[0] * np.exp((y - values[0]) / (slopes[0] * levels[0]))
    if y > values[-1]:
        rest = 1 - levels[-1]
        return 1 - rest * np.exp((values[-1] - y) / (slopes[-1] * rest))
    return np.interp(y, values, levels)


def curves_cdf(p, y):
    """What is never reached is at infinity."""
    rows = zip(p.times, p.probs, y, strict=True)
    below = np.array([np.interp(z, [0, *t], [0, *(1 - s)]) for t, s, z in rows])
    return np.where(y == np.inf, 1.0, below)


CDFS = {
    "bernoulli": lambda p, y: stats.bernoulli(p.probs).cdf(y),
    "categorical": lambda p, y: classes_cdf(p.probs, y),
    "ordinal": lambda p, y: classes_cdf(p.probs, y),
    "normal": lambda p, y: stats.norm(p.loc, p.scale).cdf(y),
    "laplace": lambda p, y: stats.laplace(p.loc, p.scale).cdf(y),
    "poisson": lambda p, y: stats.poisson(p.rate).cdf(y),
    "binomial": lambda p, y: stats.binom(p.total, p.probs).cdf(y),
    "gamma": lambda p, y: stats.gamma(p.concentration, scale=1 / p.rate).cdf(y),
    "weibull": lambda p, y: stats.weibull_min(p.concentration, scale=p.scale).cdf(y),
    "recalibrated": lambda p, y: normal_of(p).cdf(y),
    "student_t": lambda p, y: stats.t(p.df, p.loc, p.scale).cdf(y),
    "log_normal": lambda p, y: stats.lognorm(p.scale, scale=np.exp(p.loc)).cdf(y),
    "quantiles": quantiles_cdf,
    "survival_curve": curves_cdf,
    "negative_binomial": lambda p, y: negative_binomial(p).cdf(y),
    "mixture": mixture_cdf,
    "ensemble": lambda p, y: classes_cdf(p.components.probs.mean(1), y),
    "empirical": empirical_cdf,
    "empirical_missing": empirical_cdf,
    "empirical_draws": empirical_cdf,
}


def in_float64(tree):
    """A tree of jax arrays as NumPy arrays, the floating ones in double precision."""
    return jax.tree.map(lambda x: np.asarray(x, float if x.dtype.kind == "f" else None), tree)


@jax.jit
def computed(p, y, level):
    """The cdf at y, the quantiles at the level, and the limits of the cdf there."""
    quantiles = p.quantile(level)
    jump = (
        p.cdf_jump if isinstance(p, OwnPIT) and p.has_atoms else functools.partial(unit_interval, p)
    )
    return p.cdf(y), quantiles, jump(quantiles)[:2]


@pytest.mark.parametrize("family", UNIVARIATE)
@fast_in_float64
def test_cdf_and_quantile(family, dtype):
    p, y = cast(FAMILIES[family](9, 0), dtype)
    level = cast(np.linspace(0.05, 0.95, 9), dtype)
    cdf = CDFS[family]
    found, quantiles, (before, after) = computed(p, y, level)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, cdf(*in_float64((p, y))), rtol=RTOL[dtype])
    # The smallest number at which the cdf reaches the level.
    rows, at, level = in_float64((p, quantiles, level))
    assert quantiles.dtype == (dtype if p.target_kind == "real" else "int32")
    below = np.nextafter(at, -9) if p.target_kind == "real" else at - 1
    assert np.all(cdf(rows, at) >= level - RTOL[dtype])
    assert np.all(cdf(rows, below) <= level + RTOL[dtype])
    # The limits at a jump, of which only a law with masses has one.
    np.testing.assert_allclose(after, cdf(rows, at), rtol=RTOL[dtype])
    np.testing.assert_allclose(before, cdf(rows, below), rtol=3 * RTOL[dtype])


# The smallest normal number of float32 is 13 standard deviations away.
Z = np.array([-12.5, -6.0, -2.0, -0.3, 0.0, 0.4, 1.5, 4.0, 9.0])
LEVELS = np.array([1e-30, 1e-7, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 2.0**-20, 1 - 2.0**-23])
SCALES = np.logspace(-5, 5, 9)


@pytest.mark.parametrize("family, law", [(cj.Normal, stats.norm), (cj.Laplace, stats.laplace)])
def test_far_tails(family, law, dtype):
    # The relative error of z makes one of z^2 / 2 times as much in the cdf.
    rtol = {"float32": 2e-5, "float64": 1e-13}[dtype]
    p, y, level = cast((family(np.zeros(9), SCALES), SCALES * Z, LEVELS), dtype)
    z, level64 = np.array(y, float) / np.array(p.scale, float), np.array(level, float)
    cdf, quantiles, _ = computed(p, y, level)
    np.testing.assert_allclose(cdf, law.cdf(z), rtol=rtol)
    expected = np.array(p.scale, float) * law.ppf(level64)
    np.testing.assert_allclose(quantiles, expected, rtol=RTOL[dtype])
    # A mixture of one component twice is that component.
    mixture = cj.Mixture.ensemble(jax.tree.map(lambda x: jnp.stack([x, x], axis=1), p))
    cdf, _, (_, at_quantiles) = computed(mixture, y, level)
    np.testing.assert_allclose(cdf, law.cdf(z), rtol=rtol)
    np.testing.assert_allclose(at_quantiles, level, rtol=rtol)


def test_counts(dtype):
    rate = np.array([0.0, 1e-8, 0.3, 7.0, 300.0]).astype(dtype)
    p = cj.Poisson(jnp.array(rate))
    law = stats.poisson(rate.astype(float))
    for level in (0.001, 0.4, 0.9999):
        found = np.array(computed(p, jnp.zeros(5, jnp.int32), jnp.full(5, level))[1])
        slack = {"float32": 5e-6, "float64": 2e-12}[dtype]
        assert np.all(law.cdf(found) >= level - slack)
        assert np.all((law.cdf(found - 1) < level + slack) | (found == 0))
    # The derivative in the rate is -P(Y = k), also at rate 0.
    k = np.array([0, 0, 2, 5, 310])
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(p.cdf(jnp.array(k)))))(p).rate
    rtol = {"float32": 1e-4, "float64": 1e-10}[dtype]
    np.testing.assert_allclose(slopes, -law.pmf(k), rtol=rtol)


def test_smallest_count():
    expected = np.array([0, 1, 12345, 2**31 - 2, 2**31 - 1])
    thresholds = jnp.array(expected, jnp.int32)
    found = smallest_count_with(lambda k: k >= thresholds, jnp.zeros(5))
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)
    never = smallest_count_with(lambda k: k < 0, jnp.zeros(2))
    np.testing.assert_array_equal(never, 2**31 - 1)


@pytest.mark.parametrize("n_samples", [1, 100])
@fast_in_float32
def test_samples_at_exact_levels(n_samples, dtype):
    samples = np.random.default_rng(0).permutation(n_samples).astype(dtype)
    p = cj.Empirical(jnp.array(np.tile(samples, (n_samples, 1))))
    level = np.arange(1, n_samples + 1).astype(dtype) / np.asarray(n_samples, dtype)
    quantiles = computed(p, p.samples[:, 0], jnp.array(level))[1]
    np.testing.assert_array_equal(quantiles, np.arange(n_samples))


def test_weighted_samples_with_ties(float64):
    samples = jnp.array([[3.0, 1.0, 1.0, 2.0, 0.0]])
    p = cj.Empirical(samples, jnp.array([[0.2, 0.3, 0.1, 0.4, 0.0]]))
    for y, before, after in [(0.0, 0, 0), (1.0, 0, 0.4), (1.5, 0.4, 0.4), (3.0, 0.8, 1)]:
        limits = call(p, "cdf_jump", jnp.array([y]))
        np.testing.assert_allclose(limits, [[before], [after]], atol=1e-15)
    for level, y in [(0.0, 1), (0.3, 1), (0.5, 2), (0.79, 2), (0.81, 3), (1.0, 3)]:
        assert call(p, "quantile", level) == y


def test_vectors_are_refused():
    p, y = cast(FAMILIES["empirical_vectors"](4, 0), "float32")
    message = r"Empirical predictions have a {} if .* \[n, S\], got shape \[4, 9, 2\]"
    with pytest.raises(TypeError, match=message.format("cdf")):
        p.cdf(y)
    with pytest.raises(TypeError, match=message.format("quantile")):
        p.quantile(0.5)


# Levels at the ends, and outside.

ENDS = {
    "bernoulli": (0, 1),
    "categorical": (0, 3),
    "ordinal": (0, 3),
    "normal": (-np.inf, np.inf),
    "laplace": (-np.inf, np.inf),
    "poisson": (0, 2**31 - 1),
    "negative_binomial": (0, 2**31 - 1),
    "binomial": (0, lambda p: p.total),
    "gamma": (0, np.inf),
    "weibull": (0, np.inf),
    "recalibrated": (-np.inf, np.inf),
    "student_t": (-np.inf, np.inf),
    "log_normal": (0, np.inf),
    "quantiles": (-np.inf, np.inf),
    "survival_curve": (0, np.inf),
    "mixture": (-np.inf, np.inf),
    "ensemble": (0, 3),
}


# Each has code of its own for the ends.
FAST_ENDS = {"bernoulli", "categorical", "normal", "poisson", "mixture", "empirical"}


@pytest.mark.parametrize("family", slow(set(UNIVARIATE) - FAST_ENDS, UNIVARIATE))
def test_levels_at_the_ends_and_outside(family):
    @jax.jit
    def quantile(p, level):
        return p.quantile(level)

    p = cast(FAMILIES[family](4, 0)[0], "float32")
    if isinstance(p, cj.Empirical):
        ends = p.samples.min(1), p.samples.max(1)
    else:
        ends = tuple(end(p) if callable(end) else end for end in ENDS[family])
    for level, end in zip((0.0, 1.0), ends, strict=True):
        np.testing.assert_array_equal(quantile(p, jnp.full(4, level)), np.broadcast_to(end, 4))
    invalid = jnp.nan if p.target_kind == "real" else -1
    found = quantile(p, jnp.array([1.0, -0.1, 1.1, jnp.nan]))
    np.testing.assert_array_equal(found[1:], invalid)
    np.testing.assert_array_equal(found[0], np.broadcast_to(ends[1], 4)[0])


def test_levels_are_checked():
    p = cj.Normal(jnp.zeros(3), jnp.ones(3))
    with pytest.raises(ValueError, match=r"level must be in \[0, 1\], got 1.5"):
        p.quantile(1.5)
    with pytest.raises(ValueError, match=r"level must be in \[0, 1\]; row 2 is -0.5"):
        p.quantile(jnp.array([0.1, 1.0, -0.5]))
    with pytest.raises(ValueError, match=r"level must be a number or have shape \[3\].*\[2\]"):
        p.quantile(jnp.array([0.1, 0.2]))
    with pytest.raises(TypeError, match="level must be a number or an array .*got str"):
        p.quantile("0.5")
    with pytest.raises(TypeError, match="MultivariateNormalDiag predictions have no quantile"):
        cj.MultivariateNormalDiag(jnp.zeros((3, 2)), jnp.ones((3, 2))).quantile(0.5)


def test_labels_of_sums_that_are_not_one():
    # Rows may sum to one within 1e-3; the cdf ends at 1 all the same.
    p = cj.Categorical(jnp.array([[0.5, 0.5005], [0.4, 0.5995]]))
    last, level = jnp.ones(2, jnp.int32), jnp.full(2, 0.5)
    np.testing.assert_array_equal(computed(p, last, level)[0], 1)
    weighted = cj.Mixture(p.probs, cj.Normal(jnp.zeros((2, 2)), jnp.ones((2, 2))))
    np.testing.assert_array_equal(computed(weighted, jnp.full(2, 99.0), level)[0], 1)


# Gradients.


@pytest.mark.parametrize("family", slow({"normal"}, ["normal", "laplace", "mixture"]))
def test_gradients(family, float64):
    p, y = cast(FAMILIES[family](3, 0))
    level = jnp.array([0.2, 0.55, 0.9])

    @jax.jit
    def values(p, y, level):
        return p.cdf(y) + p.quantile(level)

    def total(arguments):
        return jnp.sum(values(*arguments))

    # Rows do not depend on each other: a step may move a parameter in all rows.
    gradient = jax.jit(jax.grad(total))((p, y, level))
    leaves, structure = jax.tree.flatten((p, y, level))
    for i, x in enumerate(leaves):
        for column in np.ndindex(*x.shape[1:]):
            step = np.zeros(x.shape)
            step[(slice(None), *column)] = 1e-6
            moved = [
                values(*jax.tree.unflatten(structure, [*leaves[:i], x + s, *leaves[i + 1 :]]))
                for s in (step, -step)
            ]
            slope = (moved[0] - moved[1]) / 2e-6
            found = jax.tree.leaves(gradient)[i][(slice(None), *column)]
            np.testing.assert_allclose(found, slope, rtol=2e-7, atol=1e-8)


def test_mixtures_have_a_location_and_a_spread_without_moments(float64):
    class Shifted(cj.Normal):
        def location(self):
            return self.loc + 3

        def spread(self):
            return 2 * self.scale

    components = Shifted(jnp.array([[1.0, 2.0]]), jnp.array([[0.5, 0.7]]))
    p = cj.Mixture(jnp.array([[0.25, 0.75]]), components)
    np.testing.assert_allclose(p.location(), 0.25 * 4 + 0.75 * 5)
    variance = 0.25 * 1.0**2 + 0.75 * 1.4**2 + 0.25 * 0.75 * 1.0**2
    np.testing.assert_allclose(p.spread(), np.sqrt(variance))
    np.testing.assert_allclose(p.mean(), 1.75)


@pytest.mark.parametrize("family", ["mixture", "empirical"])
def test_vmap(family):
    p, y = cast(FAMILIES[family](4, 0), "float32")
    level = jnp.array([0.1, 0.4, 0.6, 0.9])
    pairs = jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), (p, y, level))
    found = jax.jit(jax.vmap(computed))(*pairs)
    expected = computed(p, y, level)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a.ravel(), b, rtol=1e-6)
