"""Negative binomial counts against exact sums, SciPy and mpmath."""

import decimal
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scoringrules
from compiled import call
from jax.test_util import check_grads
from marks import fast_in_float32, fast_in_float64
from own_counts import Geometric
from scipy import stats

import calibjax as cj

D = decimal.Decimal
GAUSSIAN, WHITE = cj.GaussianKernel(1.5), cj.WhiteKernel()
# As float32 holds them.
CONCENTRATIONS = np.array([1e-5, 1e-2, 0.7, 15.9, 16.1, 3e3, 1e7], "float32").astype(float)
MEANS = np.array([1e-5, 0.01, 3.0, 40.0, 2e3], "float32").astype(float)


def law(p):
    """SciPy's law of negative binomial predictions."""
    mu, r = np.array(p.mu, float), np.array(p.concentration, float)
    return stats.nbinom(r, r / (r + mu))


@functools.cache
def exact(m, r):
    """Some counts, their log P(Y = k), its derivative in r, and P(Y <= k), with 50 digits."""
    deviation = np.sqrt(m + m * m / r)
    ends = np.clip(m + deviation * np.array([-3, -1, 0, 1, 4]), 0, 6000)
    counts = np.unique([0, 1, 2, 7, 15, 16, 17, 60, *np.floor(ends)]).astype(int)
    rows = []
    with decimal.localcontext(prec=50, Emin=-(10**6), Emax=10**6):
        m, r = D(m), D(r)
        probability, total, harmonic = (r * (r / (r + m)).ln()).exp(), D(0), D(0)
        for k in range(counts[-1] + 1):
            total += probability
            if k in counts:
                slope = harmonic + (r / (r + m)).ln() + (m - k) / (r + m)
                rows.append([probability.ln(), slope, total])
            probability *= (r + k) / (r + m) * m / (k + 1)
            harmonic += 1 / (r + k)
    return counts, *np.array(rows, float).T


GRID = [(m, r) for m in MEANS for r in CONCENTRATIONS]


def all_exact():
    """Columns of counts, means, concentrations, and the three results, of the whole grid."""
    rows = [
        np.stack([counts, np.full(len(counts), m), np.full(len(counts), r), *results])
        for m, r in GRID
        for counts, *results in [exact(m, r)]
    ]
    return np.concatenate(rows, axis=1)


def test_likelihood_and_its_derivatives(dtype):
    counts, m, r, log_prob, slope, _ = all_exact()
    eps = float(jnp.finfo(dtype).eps)
    y = jnp.array(counts, "int32")

    @jax.jit
    def derivatives(m, r):
        def total(m, r):
            values = cj.NegativeBinomial(m, r, max_count=1).log_prob(y)
            return jnp.sum(values), values

        return jax.grad(total, (0, 1), has_aux=True)(m, r)

    (by_mean, by_concentration), found = derivatives(jnp.asarray(m, dtype), jnp.asarray(r, dtype))
    # An error of the mean's last digit moves the value by this much.
    by_rounding = np.abs(counts - m) * r / (m + r)
    assert found.dtype == dtype
    assert np.max(np.abs(found - log_prob) / (1 + np.abs(log_prob) + by_rounding)) < 100 * eps
    np.testing.assert_allclose(by_mean, r * (counts - m) / m / (m + r), rtol=100 * eps)
    np.testing.assert_allclose(by_concentration, slope, rtol=1e5 * eps)


# Counts, means, concentrations, log P(Y = k): by mpmath with 50 digits.
FAR = [
    (1000000, 1000000.0, 1.0, -14.815511057964107),
    (2000000000, 1000000000.0, 3.0, -22.734281788882137),
    (0, 10000000000.0, 10000000000.0, -6931471805.5994531),
    (12345678, 12000000.0, 1000000000.0, -4881.8134895944272),
    (1000000, 0.001, 1e-06, -1027.1313467154915),
    (7, 1e-09, 1000000000000.0, -153.58802222066929),
    (1000000000, 1000000000.0, 1000000000000000.0, -11.280571951760962),
    (300, 100000000.0, 0.0001, -14.916258024196855),
]


def test_likelihood_far_out(float64):
    for k, m, r, expected in FAR:
        p = cj.NegativeBinomial(np.array([m]), np.array([r]), max_count=1)
        np.testing.assert_allclose(call(p, "log_prob", np.array([k]))[0], expected, rtol=1e-12)


@fast_in_float64
def test_the_limit_is_poisson(dtype):
    rates = jnp.asarray([0.0, 1e-6, 0.3, 7.5, 90.0, 3000.0], dtype)
    poisson = cj.Poisson(rates)
    eps = float(jnp.finfo(dtype).eps)
    for r in (1e12, 1e25):
        p = cj.NegativeBinomial(rates, jnp.full_like(rates, r), max_count=poisson.max_count)
        for counts in (poisson.rate, poisson.rate + 3 * jnp.sqrt(poisson.rate), 0 * rates):
            y = counts.astype(jnp.int32)
            expected = call(poisson, "log_prob", y)
            np.testing.assert_allclose(
                call(p, "log_prob", y), expected, rtol=100 * eps + 1e-8, atol=200 * eps
            )
    inner = jax.jit(jax.vmap(lambda p: cj.inner_product(p, WHITE, p)))
    np.testing.assert_allclose(inner(p), inner(poisson), rtol=1000 * eps)


@fast_in_float32
def test_cdf_and_quantiles(dtype):
    eps = float(jnp.finfo(dtype).eps)
    counts, m, r, _, _, below = all_exact()
    kept = np.isin(r, CONCENTRATIONS[1:]) & (counts <= 500)
    counts, m, r, below = (x[kept] for x in (counts, m, r, below))
    p = cj.NegativeBinomial(jnp.asarray(m, dtype), jnp.asarray(r, dtype), max_count=500)
    y = jnp.array(counts, "int32")
    found = jax.jit(lambda p, y: p.cdf(y))(p, y)
    np.testing.assert_allclose(found, below, rtol=4000 * eps, atol=1e-30)
    # A level between those of two counts.
    steps = np.array(law(p).pmf(counts))
    clear = steps > 1e-4
    quantile = jax.jit(lambda p, level: p.quantile(level))
    again = quantile(p, jnp.asarray(below - steps / 2, dtype))
    np.testing.assert_array_equal(again[clear], counts[clear])
    assert sum(clear) > 100


def test_quantiles_against_scipy(float64):
    mu, r = np.array([0.0, 0.5, 4.0, 200.0]), np.array([1.0, 0.3, 9.0, 50.0])
    p = cj.NegativeBinomial(jnp.array(mu), jnp.array(r))
    # Of the last one more than 50 is likely.
    cut = cj.NegativeBinomial(p.mu, p.concentration, max_count=50)

    @jax.jit
    def both(level, y):
        predictions = p, cut
        return [q.quantile(level) for q in predictions], [q.cdf(y) for q in predictions]

    y = jnp.array([0, 3, 50, 51])
    for level in (0.001, 0.31, 0.5, 0.77, 0.9999):
        (found, of_cut), cdfs = both(level, y)
        np.testing.assert_array_equal(found, law(p).ppf(level))
        # What no count up to max_count is known to be is the largest number, or NaN.
        largest = np.iinfo("int32").max
        np.testing.assert_array_equal(of_cut, [*law(p).ppf(level)[:3], largest])
    expected = law(p).cdf(y)
    np.testing.assert_allclose(cdfs[0], expected, rtol=1e-12)
    np.testing.assert_allclose(cdfs[1], expected, rtol=1e-12)
    of_ends, cdfs = both(1.0, y - 52)
    assert np.all(np.array(of_ends) == largest) and not np.any(cdfs)


def test_derivatives_of_the_cdf(float64):
    y = jnp.array([0, 2, 11])

    def cdf(mu, r):
        p = cj.NegativeBinomial(mu, r, max_count=40)
        return jnp.sum(p.cdf(y) * jnp.array([1.0, 2.0, 3.0]))

    x = jnp.array([0.4, 3.0, 9.0]), jnp.array([0.5, 2.0, 30.0])
    check_grads(jax.jit(cdf), x, order=1, modes=["rev", "fwd"], rtol=1e-6)


# The tail.


def test_the_tail_bound(float64):
    counts = np.arange(1.0, 5000.0)
    for m in (1e-3, 1.0, 30.0, 900.0):
        for r in (1e-3, 0.5, 20.0, 1e6):
            p = cj.NegativeBinomial(np.float64(m), np.float64(r), max_count=1)
            exponent = p.tail_exponent(counts, np)
            assert np.all(np.diff(exponent) >= 0)
            assert np.all(law(p).sf(counts) <= 1.0001 * np.exp(-exponent) + 1e-300)
            inside = jax.jit(lambda p: p.tail_exponent(jnp.arange(1.0, 5000.0)))(p)
            np.testing.assert_allclose(inside, exponent, rtol=1e-9, atol=1e-9)


def test_max_count():
    for m, r, count in [(0.0, 1.0, 32), (3.0, 1e6, 32), (3.0, 3.0, 128), (60.0, 1.0, 4096)]:
        bad = jnp.array([0.1, m, jnp.nan, -3.0, 1e6])
        p = cj.NegativeBinomial(bad, jnp.full(5, r))
        assert p.max_count == count
        assert stats.nbinom.sf(count, r, r / (r + m)) < 4.3e-18
    assert cj.NegativeBinomial(jnp.array([1e6]), jnp.array([1.0])).max_count is None
    inside = jax.jit(lambda m: jnp.array(cj.NegativeBinomial(m, m).max_count is None))
    assert inside(jnp.ones(2))


def test_heavy_tails_are_nan_and_never_truncated():
    p = cj.NegativeBinomial(jnp.array([1.0, 500.0]), jnp.array([2.0, 0.1]))
    for kernel in (WHITE, GAUSSIAN):
        mean = jax.jit(jax.vmap(lambda p, kernel=kernel: cj.inner_product(p, kernel, p)))(p)
        np.testing.assert_array_equal(jnp.isnan(mean), [False, True])
    with pytest.raises(
        ValueError, match="must be given for NegativeBinomial predictions with quantiles"
    ):
        jax.jit(lambda m: cj.NegativeBinomial(m, m).quantile(0.5))(jnp.ones(2))


# Expectations.


def explicit(p_of_counts, q_of_counts, counts, y):
    gaussian = np.exp(-(((counts[:, None] - counts) / 1.5) ** 2) / 2)
    at_y = np.exp(-(((counts - y) / 1.5) ** 2) / 2)
    return p_of_counts @ at_y, p_of_counts @ gaussian @ q_of_counts, p_of_counts @ q_of_counts


@fast_in_float64
@pytest.mark.parametrize("kind", ["negative binomial", "mixture"])
def test_expectations(kind, dtype):
    counts, y = np.arange(2000), 7
    mu, r = np.array([4.0, 60.0]), np.array([0.8, 12.0])
    weights = np.array([0.25, 0.75])
    of_both = stats.nbinom.pmf(counts[:, None], r, r / (r + mu)).T
    base = cj.NegativeBinomial(jnp.asarray(mu, dtype), jnp.asarray(r, dtype))
    if kind == "mixture":
        components = jax.tree.map(lambda x: x[None], base)
        p = cj.Mixture(jnp.asarray(weights[None], dtype), components)[0]
        ours = theirs = weights @ of_both
        q = p
    else:
        (p, q), (ours, theirs) = base, of_both
    mean, inner, coincidence = explicit(ours, theirs, counts, y)

    @jax.jit
    def all_three(p, q, y):
        return [
            cj.mean_embedding(p, GAUSSIAN, y),
            cj.inner_product(p, GAUSSIAN, q),
            cj.inner_product(p, WHITE, q),
            cj.mean_embedding(p, WHITE, y),
        ]

    found = all_three(p, q, jnp.array(y))
    rtol = 1e-12 if dtype == "float64" else 3e-6
    np.testing.assert_allclose(found, [mean, inner, coincidence, ours[y]], rtol=rtol)


@pytest.mark.slow
def test_a_mean_of_zero_has_finite_gradients(float64):
    def loss(mu, r, kernel):
        p = cj.NegativeBinomial(mu, r, max_count=64)
        return cj.skce(kernel, p, jnp.array([0, 1, 1, 3]))

    mu, r = jnp.array([0.0, 0.0, 1.0, 2.0]), jnp.array([0.5, 2.0, 30.0, 5.0])
    # Ranks jump at the predictions that they are among: differences are those of the last kernel.
    for kernel_of in cj.default_kernel, cj.product_kernel:
        kernel = kernel_of(cj.NegativeBinomial(mu, r, max_count=64))
        gradients = jax.jit(jax.grad(loss, (0, 1)))(mu, r, kernel)
        assert all(jnp.all(jnp.isfinite(g)) and jnp.any(g != 0) for g in gradients)
    step, value = 1e-5, jax.jit(loss)
    for i, gradient in enumerate(gradients):
        for row in (2, 3):
            x = [
                (mu.at[row].add(h), r) if i == 0 else (mu, r.at[row].add(h)) for h in (step, -step)
            ]
            expected = (value(*x[0], kernel) - value(*x[1], kernel)) / (2 * step)
            np.testing.assert_allclose(gradient[row], expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("r", [1e-3, 0.7, 30.0, 1e6])
def test_characteristic_function(r, float64):
    v = np.array([-2.0, 1e-3, 0.4, 3.1])
    counts = np.arange(200_000)
    m = 3.0
    p = cj.NegativeBinomial(np.array(m), np.array(r))
    weights = stats.nbinom.pmf(counts, r, r / (r + m))
    expected = np.exp(1j * np.array(v)[:, None] * counts) @ weights
    found = jax.jit(lambda p, v: jax.vmap(p.characteristic)(v))(p, v)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow
def test_a_family_of_the_users_own(key, float64):
    """The geometric law is the negative binomial one of concentration 1."""
    q = jnp.array([0.2, 0.5, 0.9])
    ours, theirs = Geometric(q), cj.NegativeBinomial(q / (1 - q), jnp.ones(3))
    assert (ours.max_count, theirs.max_count) == (512, 512)
    y = jnp.array([0, 4, 11])
    np.testing.assert_allclose(ours.cdf(y), stats.geom(1 - np.array(q)).cdf(y + 1), rtol=1e-13)
    np.testing.assert_array_equal(ours.quantile(0.8), stats.geom(1 - np.array(q)).ppf(0.8) - 1)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.MeanEmbeddingDistance(GAUSSIAN)), GAUSSIAN)
    found, expected = (jax.jit(cj.skce)(kernel, p, y) for p in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-11)


# Draws.


@pytest.mark.slow
def test_certain_and_extreme_draws(key):
    p = cj.NegativeBinomial(jnp.array([0.0, 1e-30, 1e9, 5.0]), jnp.array([1.0, 1e-30, 1e-3, 1e30]))
    draws = p.sample(key, (100,))
    assert jnp.all(draws >= 0) and jnp.all(draws[:, :2] == 0)
    assert 3 < jnp.mean(draws[:, 3].astype(float)) < 7


def test_rare_events():
    """P(Y is not its most probable value), by enumeration."""
    mu, r = np.array([0.0, 1e-3, 3.0, 40.0, 6.0]), np.array([1.0, 0.5, 0.3, 20.0, 1e5])
    p = cj.NegativeBinomial(jnp.array(mu), jnp.array(r))
    of_counts = stats.nbinom.pmf(np.arange(300)[:, None], r, r / (r + mu))
    found = call(p, "off_mode_probability")
    np.testing.assert_allclose(found, 1 - of_counts.max(0), rtol=1e-4, atol=1e-7)


ONES = jnp.ones(4)
ERRORS = {
    "mu": (
        lambda: cj.default_kernel(cj.NegativeBinomial(-ONES, ONES)),
        "mu must be nonnegative and finite; row 0 is -1.0",
    ),
    "concentration": (
        lambda: cj.default_kernel(cj.NegativeBinomial(ONES, 0 * ONES)),
        "concentration must be positive and finite; row 0 is 0.0",
    ),
    "shape of concentration": (
        lambda: cj.default_kernel(cj.NegativeBinomial(ONES, ONES[:3])),
        r"concentration must have shape \[n\] with n = 4",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    make, message = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        make()


# Calibration.


def test_crps(float64):
    mu, r = np.array([0.1, 3.0, 20.0, 100.0]), np.array([0.5, 2.0, 1e3, 5.0])
    y = np.array([0, 5, 18, 130])
    found = cj.crps(cj.NegativeBinomial(jnp.array(mu), jnp.array(r)), jnp.array(y))
    np.testing.assert_allclose(found, scoringrules.crps_negbinom(y, r, r / (r + mu)), rtol=1e-11)
