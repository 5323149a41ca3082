"""Binomial predictions against SciPy, direct sums and differences, up to 10^9 trials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from compiled import call
from marks import fast_in_float32
from messages import check_message
from scipy import stats

import calibjax as cj

TOTALS = np.array([1, 2, 10, 1000, 10**6, 10**9])
# As float32 holds them.
PROBS = np.array([1e-9, 1e-4, 0.01, 0.3, 0.5, 0.9, 0.9999], "float32").astype(float)


def grid():
    """Totals, probabilities and counts, from the mean to many deviations away."""
    rows = []
    for total in TOTALS:
        for p in PROBS:
            mean, deviation = total * p, np.sqrt(total * p * (1 - p))
            counts = mean + deviation * np.array([-11, -4, -1.5, -0.1, 0.2, 1, 3, 7, 11])
            counts = np.append(np.floor(counts), [0, 1, total - 1, total])
            rows += [(total, p, k) for k in np.unique(np.clip(counts, 0, total))]
    return np.array(rows, float).T


def rounding(total, p, count, dtype):
    """The error of n p, and in float32 of n and of a count above 2^24, in standard deviations."""
    eps = float(jnp.finfo(dtype).eps)
    held = np.maximum(count, total * p) * (dtype == "float32") * (total > 2**24)
    return eps / 2 * (held + total * p) / np.sqrt(total * p * (1 - p))


@pytest.mark.parametrize("integers", [False, True])
def test_log_prob_and_its_slope(integers, dtype):
    total, p, k = grid()
    law = stats.binom(total, p)
    with np.errstate(divide="ignore"):
        expected = np.log(law.pmf(k))
    kept = expected > -600  # where SciPy has a probability to take the logarithm of
    total, p, k, expected = total[kept], p[kept], k[kept], expected[kept]
    given = total.astype("int32" if integers else dtype)

    @jax.jit
    def value_and_slope(p):
        def of(p):
            values = cj.Binomial(given, p, max_count=1).log_prob(jnp.array(k, jnp.int32))
            return jnp.sum(values), values

        return jax.grad(of, has_aux=True)(p)

    slope, found = value_and_slope(jnp.array(p, dtype))
    assert found.dtype == dtype
    eps = float(jnp.finfo(dtype).eps)
    z = np.abs(k - total * p) / np.sqrt(total * p * (1 - p))
    off = rounding(total, p, k, dtype)
    # SciPy is wrong by up to 4e-12: see the next test.
    allowed = 40 * eps * (1 + np.abs(expected)) + (z + off) * off + 1e-11
    assert np.max(np.abs(found - expected) / allowed) < 1
    expected = (k - total * p) / (p * (1 - p))
    # An error of z moves the derivative, z sqrt(n / (p (1 - p))), by so much.
    allowed = 20 * eps * (np.abs(expected) + 1 / p) + off * np.sqrt(total / (p * (1 - p)))
    assert np.max(np.abs(slope - expected) / allowed) < 1


# Totals, probabilities and counts, and log(binomial(n, k) p^k (1 - p)^(n - k)) by mpmath.
EXACT = [
    (10**9, 0.3, 300014503, -11.001059180561714),
    (10**9, 0.0001, 99000, -11.687577990259146),
    (10**9, 0.5, 499900000, -30.587424384701268),
    (1000, 0.01, 40, -28.656036149873759),
    (2**30, 0.999, 2**30 - 1070000, -14.393976463059065),
]


def test_log_prob_of_many_trials(float64):
    total, p, k, expected = np.array(EXACT).T
    found = call(cj.Binomial(total, p, max_count=1), "log_prob", jnp.array(k, jnp.int32))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_tails(dtype):
    total, p, k = grid()
    predictions = cj.Binomial(total.astype(dtype), p.astype(dtype), max_count=1)
    off = rounding(total, p, k, dtype)
    z = np.abs(k - total * p) / np.sqrt(total * p * (1 - p))
    law, eps = stats.binom(total, p), float(jnp.finfo(dtype).eps)
    for method, of_law in [("cdf", law.cdf), ("survival", law.sf)]:
        found = np.asarray(call(predictions, method, jnp.array(k, jnp.int32)))
        expected = of_law(k)
        thin = (expected < 0.6) & (expected > 1e-37)
        possible = np.maximum(expected, 1e-37)
        digits = (40 if dtype == "float32" else 1000) * eps * (1 - np.log(possible))
        # The slope of log(1 - Phi(z)) is about z + 1.
        error = np.abs(found / possible - 1) / (digits + (z + 1) * 2 * off)
        assert np.max(error[thin]) < 1
        np.testing.assert_allclose(found, expected, atol=1e-30 + 4 * eps + np.max(off), rtol=0)


def test_certain_outcomes(dtype):
    """No trial, or a probability of 0 or 1; the derivatives are those of polynomials in p."""
    total, p, k = np.array(
        [[0, 0, 5, 5, 5, 5, 5, 5], [0.5, 1, 0, 0, 1, 1, 0, 1], [0, 0, 0, 1, 5, 4, 2, 0]]
    )
    predictions = cj.Binomial(total.astype(dtype), p.astype(dtype))
    counts = jnp.array(k, jnp.int32)
    likely = np.array([1, 1, 1, 0, 1, 0, 0, 0])
    slopes = np.array([0, 0, -5, 5, 5, -5, 0, 0])
    np.testing.assert_array_equal(jnp.exp(call(predictions, "log_prob", counts)), likely)

    def of_one(method):
        return jax.jit(jax.vmap(jax.value_and_grad(method)))

    of_count = of_one(lambda p, n, k: cj.Binomial(n, p, max_count=1).probability(k))
    found, slope = of_count(predictions.probs, predictions.total, counts)
    np.testing.assert_array_equal(found, likely)
    np.testing.assert_array_equal(slope, slopes)
    for method, sign in [("cdf", 1), ("survival", -1)]:
        tail = of_one(
            lambda p, n, k, method=method: getattr(
                cj.Binomial(n[None], p[None], max_count=1), method
            )(k[None])[0]
        )
        found, slope = tail(predictions.probs, predictions.total, counts)
        expected = (total * p <= k) if sign == 1 else (total * p > k)
        np.testing.assert_array_equal(found, expected)
        by_hand = np.array([0, 0, -5, 0, 0, -5, 0, 0]) * sign
        np.testing.assert_array_equal(slope, by_hand)
    np.testing.assert_array_equal(call(predictions, "mean"), total * p)
    np.testing.assert_array_equal(call(predictions, "variance")[1:], 0)
    np.testing.assert_array_equal(call(predictions, "quantile", 0.5), total * p)
    np.testing.assert_array_equal(call(predictions, "crps_closed_form", counts), abs(k - total * p))
    np.testing.assert_array_equal(predictions.sample(jax.random.key(0), (3,)), [total * p] * 3)
    # Outside of the support.
    outside = cj.Binomial(np.array([3.0, 3.0]), np.array([0.5, 0.5]))
    counts = jnp.array([-1, 4])
    np.testing.assert_array_equal(call(outside, "log_prob", counts), -np.inf)
    np.testing.assert_array_equal(call(outside, "cdf", counts), [0, 1])
    np.testing.assert_array_equal(call(outside, "survival", counts), [1, 0])
    np.testing.assert_array_equal(outside.supports(counts)[1], False)


def test_slope_of_tails(float64):
    total, p, k = np.array([[10, 1000, 10**6], [0.3, 0.99, 1e-4], [2, 995, 120]])
    for sign, method in [(1, "cdf"), (-1, "survival")]:
        slope = jax.grad(lambda p, m=method: jnp.sum(call(cj.Binomial(total, p), m, k.astype(int))))
        sides = [stats.binom.cdf(k, total, p * (1 + step)) for step in (1e-6, -1e-6)]
        expected = sign * (sides[0] - sides[1]) / (2e-6 * p)
        np.testing.assert_allclose(slope(p), expected, rtol=1e-7)


@fast_in_float32
def test_quantiles_of_many_trials(dtype):
    total, p = np.array([7, 4000, 10**6, 10**9]), np.array([0.3, 0.01, 0.5, 1e-3], "float32")
    predictions = cj.Binomial(total, p.astype(dtype))
    law = stats.binom(total, p.astype(float))
    for level in (1e-6, 0.1, 0.5, 0.99):
        found = np.asarray(call(predictions, "quantile", level))
        off = 2e-3 * law.std() if dtype == "float32" else 0
        assert np.all(np.abs(found - law.ppf(level)) <= off)


@pytest.mark.parametrize("total, p", [(5, 0.4), (40, 0.9), (10**9, 3e-9), (10**6, 0.5)])
def test_draws(total, p, key):
    """Pearson's statistic of the counts, where these are many of cells with equal probabilities."""
    p = float(np.float32(p))
    n = 40000
    predictions = cj.Binomial(jnp.full(2, total), jnp.full(2, p, jnp.float32), max_count=1)
    found = np.asarray(jax.jit(lambda key: predictions.sample(key, (n,)))(key))
    law = stats.binom(total, p)
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 25)))
    cells = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
    for draws in found.T:
        counts = np.bincount(np.searchsorted(edges, draws), minlength=cells.size)
        statistic = np.sum((counts - n * cells) ** 2 / (n * cells))
        assert stats.chi2(cells.size - 1).sf(statistic) > 1e-3
    assert abs(np.corrcoef(found.T)[0, 1]) < 4 / n**0.5


@pytest.mark.slow
@pytest.mark.parametrize("total", [20, 300, 10**5, 10**7, 10**9])
@pytest.mark.parametrize("p", [1e-3, 0.1, 0.5, 0.8])
def test_many_draws(total, p, key):
    """Draws have uniform places in SciPy's law; float32 moves those of 10^9 trials by 0.002."""
    p, n = float(np.float32(p)), 400000
    predictions = cj.Binomial(jnp.full(1, total), jnp.full(1, p, jnp.float32), max_count=1)
    draws = np.asarray(jax.jit(lambda key: predictions.sample(key, (n,)))(key))[:, 0]
    law = stats.binom(total, p)
    between = np.random.default_rng(0).uniform(size=n)
    places = law.cdf(draws - 1) + between * law.pmf(draws)
    counts = np.histogram(places, 20, (0, 1))[0]
    statistic = np.sum((counts - n / 20) ** 2) / (n / 20)
    # A shift by 0.002 deviations adds n 0.002^2 = 1.6 to the statistic.
    assert stats.chi2(19).sf(statistic) > 1e-3


def test_crps(dtype):
    """Against sums over all counts, and where there are too many against scoringrules."""
    total, p, y = np.array(
        [[0, 1, 1, 2, 9, 200, 4000], [0.5, 0.3, 0.9, 0.5, 0.5, 0.02, 0.7], [0, 0, 1, 2, 0, 9, 2750]]
    )
    p = p.astype("float32").astype(float)
    predictions = cj.Binomial(total.astype(dtype), p.astype(dtype))
    found = cj.crps(predictions, jnp.array(y, int))
    counts = np.arange(4001)[:, None]
    expected = np.sum((stats.binom.cdf(counts, total, p) - (counts >= y)) ** 2, axis=0)
    rtol = {"float32": 1e-5, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * 1e-2)
    np.testing.assert_allclose(
        found[1:6], scoringrules.crps_binomial(y[1:6], total[1:6].astype(int), p[1:6]), rtol=rtol
    )


def test_crps_of_many_trials(dtype):
    """For many trials the law is normal, up to 1 / deviation."""
    total, p = np.array([10**7, 10**8, 10**9]), np.array([0.5, 1e-3, 0.01])
    deviation = np.sqrt(total * p * (1 - p))
    y = np.floor(total * p + deviation * np.array([0.1, -2, 1.5])).astype("int32")
    found = cj.crps(cj.Binomial(total.astype(dtype), p.astype(dtype), max_count=1), y)
    normal = scoringrules.crps_normal(y, total * p, deviation)
    np.testing.assert_allclose(found, normal, rtol=3e-3)


def test_gradients_of_crps(float64):
    total, p, y = np.array([[1, 9, 200], [0.3, 0.5, 0.02], [0, 2, 9]])
    slope = jax.grad(
        lambda p: jnp.sum(cj.crps(cj.Binomial(total, p, max_count=256), y.astype(int)))
    )
    counts = np.arange(201)[:, None]
    sides = [
        np.sum((stats.binom.cdf(counts, total, p + step) - (counts >= y)) ** 2, axis=0)
        for step in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(slope(p), (sides[0] - sides[1]) / 2e-6, rtol=1e-7)


def test_max_count():
    p = jnp.array([0.5, 0.1])
    assert cj.Binomial(jnp.array([20, 5]), p).max_count == 32
    assert cj.Binomial(jnp.array([4096, 5]), p).max_count == 4096
    # Larger counts hardly happen, or not at all.
    assert cj.Binomial(jnp.array([10**9, 5]), jnp.array([1e-8, 1.0])).max_count == 64
    many = cj.Binomial(jnp.array([10**9, 10**9]), jnp.array([0.5, 0.01]))
    assert many.max_count is None
    targets = jnp.array([10, 20])
    check_message(
        lambda: cj.skce(cj.product_kernel(many), many, targets),
        ValueError,
        "max_count must be given for Binomial predictions with a WhiteKernel, found by sums",
    )
    # The bound of the tail is one.
    counts = np.arange(60)
    p = cj.Binomial(np.full(60, 50.0), np.full(60, 0.3))
    exponents = p.tail_exponent(counts, np)
    assert np.all(np.exp(-exponents) >= (1 - 1e-12) * stats.binom.sf(counts, 50, 0.3))
    assert np.all(np.diff(exponents[counts < 50]) >= 0)
    np.testing.assert_array_equal(exponents[counts >= 50], np.inf)


@pytest.mark.parametrize(
    ("predictions", "targets", "message"),
    {
        "negative": (
            cj.Binomial(jnp.array([3, -1]), jnp.ones(2)),
            [1, 1],
            "total must be integers",
        ),
        "half": (cj.Binomial(jnp.array([3.5, 1]), jnp.ones(2)), [1, 1], r"total must be .*row 0"),
        "large": (cj.Binomial(jnp.array([2**30 + 1, 1]), jnp.ones(2)), [1, 1], "in 0 … 1073741824"),
        "probs": (cj.Binomial(4, jnp.array([0.5, 1.5])), [1, 1], r"probs must be in \[0, 1\]"),
        "target": (cj.Binomial(4, jnp.ones(2)), [4, 5], "counts 0, 1, … up to the total .*row 1"),
    }.values(),
)
def test_errors(predictions, targets, message):
    check_message(lambda: cj.crps(predictions, jnp.array(targets)), ValueError, message)


def test_masked_rows_hold_anything():
    total, p = jnp.array([5.0, jnp.nan, 7.0, -3.0]), jnp.array([0.5, 2.0, 0.1, jnp.nan])
    targets, where = jnp.array([2, -7, 1, 10**9]), jnp.array([True, False, True, False])
    kernel = cj.TensorProduct(
        cj.DistanceKernel(cj.MeanEmbeddingDistance(cj.GaussianKernel(1.0))), cj.GaussianKernel(1.0)
    )
    found = cj.skce(kernel, cj.Binomial(total, p, max_count=32), targets, where=where)
    kept = cj.Binomial(total[::2], p[::2], max_count=32)
    np.testing.assert_allclose(found, cj.skce(kernel, kept, targets[::2]), rtol=1e-6)


def test_wide_totals_of_integers():
    """A count may be rounded up with its total: it remains possible."""
    total = jnp.array([10**9 + 31, 10**9 + 33], jnp.int32)
    p = cj.Binomial(total, jnp.array([0.5, 0.5], jnp.float32), max_count=1)
    assert np.all(np.isfinite(cj.log_score(cj.Binomial(total, jnp.ones(2), max_count=1), total)))
    assert np.all(np.isfinite(cj.crps(p, total)))
