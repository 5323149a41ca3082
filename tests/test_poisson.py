"""The Poisson probabilities and expectations against SciPy, from rate 0 to thousands."""

import decimal
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import call
from marks import fast_in_float32, fast_in_float64, slow
from scipy import special, stats

import calibjax as cj
from calibjax.distributions._poisson import probability

RATES = np.array([0.0, 1e-6, 0.3, 1.0, 7.5, 15.9, 16.1, 90.0, 3000.0], "float32").astype(float)


def counts_of(rate):
    """Counts out to nine standard deviations."""
    low, high = rate - 9 * np.sqrt(rate + 1), rate + 9 * np.sqrt(rate + 1)
    return np.unique(np.linspace(max(low, 0), high, 60).astype("int32"))


def exact(count, rate):
    """With 60 digits; SciPy has 12 at a rate of 3000."""
    with decimal.localcontext(prec=60, Emin=-(10**6), Emax=10**6):
        power = decimal.Decimal(rate) ** int(count) if count else decimal.Decimal(1)
        return float(power * decimal.Decimal(-rate).exp() / math.factorial(count))


# Relative to the largest probability; an error of the rate's last digit moves it by eps sqrt(rate).
@pytest.mark.parametrize("rate", RATES)
def test_probabilities(rate, dtype):
    counts = counts_of(rate)
    found = jax.jit(jax.vmap(probability, (0, None)))(jnp.array(counts), jnp.asarray(rate, dtype))
    assert found.dtype == dtype
    expected = [exact(count, rate) for count in counts]
    scale = np.maximum(np.sqrt(rate), 2)
    atol = 2 * float(jnp.finfo(dtype).eps) * scale * np.max(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("rate", RATES)
def test_slope_of_probabilities(rate, float64):
    counts = counts_of(rate)
    slopes = jax.jit(jax.vmap(jax.grad(probability, 1), (0, None)))
    # Central differences of exact values; ahead at rate 0, where it is -1 at 0 and 1 at 1.
    step = 1e-4 * max(rate, 1e-2)
    ends = (rate + step, max(rate - step, 0.0))
    high, low = ([exact(count, end) for count in counts] for end in ends)
    expected = (np.array(high) - low) / (ends[0] - ends[1])
    found = slopes(jnp.array(counts), jnp.asarray(rate))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 if rate == 0 else 1e-7)


def coincidence(rate, other):
    counts = np.arange(20_000)
    return np.sum(stats.poisson.pmf(counts, rate) * stats.poisson.pmf(counts, other))


@pytest.mark.parametrize("other", slow({0.5, 20.0}, [0.0, 0.5, 20.0, 2900.0]))
def test_coincidences(other, dtype):
    def inner(rate):
        p = cj.Poisson(rate), cj.Poisson(jnp.asarray(other, dtype))
        return cj.inner_product(p[0], cj.WhiteKernel(), p[1])

    rates = jnp.asarray(RATES, dtype)
    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(inner)))(rates)
    expected = [coincidence(rate, other) for rate in RATES]
    # SciPy's probabilities have 12 digits at a rate of 3000.
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=max(200 * eps, 1e-11), atol=eps)
    counts = np.arange(20_000)
    by_rate = [stats.poisson.pmf(counts - 1, r) - stats.poisson.pmf(counts, r) for r in RATES]
    expected = [np.sum(x * stats.poisson.pmf(counts, other)) for x in by_rate]
    np.testing.assert_allclose(slopes, expected, rtol=2000 * eps, atol=2 * eps)


@fast_in_float64
@pytest.mark.slow
def test_rate_zero_has_finite_gradients(dtype):
    rates = jnp.asarray([0.0, 0.0, 1.0, 2.0], dtype)
    targets = jnp.array([0, 1, 1, 3])

    @jax.jit
    def loss(kernel, rates):
        return cj.skce(kernel, cj.Poisson(rates), targets)

    gradient = jax.grad(loss, 1)(cj.default_kernel(cj.Poisson(rates)), rates)
    assert jnp.all(jnp.isfinite(gradient)) and jnp.any(gradient != 0)
    if dtype == "float64":
        # Ranks, as in default kernels, are no functions for differences.
        near = cj.DistanceKernel(cj.EmbeddingDistance(lambda p: jnp.sqrt(p.rate[None] + 1)))
        kernel, step = cj.PITKernel(near), jnp.array([0.0, 0.0, 0.0, 1e-5])
        gradient = jax.grad(loss, 1)(kernel, rates)
        expected = (loss(kernel, rates + step) - loss(kernel, rates - step)) / 2e-5
        np.testing.assert_allclose(gradient[3], expected, rtol=1e-8)


@pytest.mark.slow
def test_series_beyond_its_last_term_is_nan(float64):
    # At most some 3.5 is allowed for 0 … 40.
    kernel, y = cj.GaussianKernel(1.5), jnp.array(2)
    counts = np.arange(200)
    for rate, allowed in [(1.0, True), (3.0, True), (20.0, False)]:
        p = cj.Poisson(jnp.array(rate), max_count=40)
        for value in (cj.mean_embedding(p, kernel, y), cj.inner_product(p, kernel, p)):
            assert jnp.isfinite(value) == allowed
        if allowed:
            at_counts = np.exp(-(((counts - 2) / 1.5) ** 2) / 2)
            expected = stats.poisson.pmf(counts, rate) @ at_counts
            np.testing.assert_allclose(cj.mean_embedding(p, kernel, y), expected, rtol=1e-14)


def test_the_tail_bound():
    for rate in (0.01, 1.0, 10.0, 300.0, 5000.0):
        p, counts = cj.Poisson(np.float64(rate), max_count=1), np.arange(1.0, 6000.0)
        tails = special.pdtrc(counts, rate)
        assert np.all(tails <= 1.0001 * np.exp(-p.tail_exponent(counts, np)))


def test_targets_beyond_the_last_term(float64):
    # A count that the series does not reach is an event of its own, not the last term.
    p = cj.Poisson(jnp.array([1.0, 2.0]), max_count=40)
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.EmbeddingDistance(rate)), cj.GaussianKernel(1.0))
    h = cj.h_matrix(kernel, p, jnp.array([1000, 1001]))
    inner = coincidence_gaussian(1.0, 2.0)
    np.testing.assert_allclose(h[0, 1], np.exp(-1.0) * (np.exp(-0.5) + inner), rtol=1e-12)


def rate(p):
    return p.rate


def coincidence_gaussian(one, other):
    counts = np.arange(60)
    gaussian = np.exp(-((counts[:, None] - counts[None]) ** 2) / 2)
    return stats.poisson.pmf(counts, one) @ gaussian @ stats.poisson.pmf(counts, other)


@fast_in_float32
def test_tiny_rates_keep_the_digits_of_rare_counts(dtype):
    rates = jnp.asarray([1e-9, 1e-20], dtype)
    rtol = 1e-6 if dtype == "float32" else 1e-14
    found = cj.Poisson(rates).off_mode_probability()
    np.testing.assert_allclose(found, [1e-9, 1e-20], rtol=max(rtol, 1e-9))


GAUSSIAN = cj.GaussianKernel(1.0)


def tensor(distance, target_kernel=GAUSSIAN):
    return cj.TensorProduct(cj.DistanceKernel(distance), target_kernel)


@jax.jit
@jax.grad
def slope_of_the_first(rates, counts):
    return cj.Poisson(rates).log_prob(counts)[0]


@pytest.mark.parametrize("value", slow({1e-37, 1e3, 1e7}, [0.0, 1e-37, 0.5, 1e3, 1e5, 1e7]))
def test_likelihood_of_counts(value, dtype):
    rates = np.full(4, value, dtype)
    root = np.sqrt(value)
    counts = np.array([0, np.floor(value), np.floor(value + 3 * root), 20], "int32")
    p = cj.Poisson(rates)
    # The rate as float32 has it; SciPy's own formula loses digits, the normal law does not matter.
    exact = stats.poisson.logpmf(counts, np.array(rates, float))
    rtol = 1e-5 if dtype == "float32" else 1e-9
    atol = 4e-5 * max(1, root / 100) if dtype == "float32" else 1e-7
    np.testing.assert_allclose(call(p, "log_prob", counts), exact, rtol=rtol, atol=atol)
    slope = slope_of_the_first(rates, counts)[0]
    assert slope == -1  # of count 0


@pytest.mark.slow
def test_second_derivatives_at_rate_zero(float64):
    kernel = tensor(cj.EmbeddingDistance(rate), cj.WhiteKernel())

    @jax.jit
    def gradient(rates):
        def loss(rates):
            square = cj.DistanceKernel(cj.EmbeddingDistance(rate), 2.0, 2.0)
            smooth = cj.TensorProduct(square, kernel.target_kernel)
            return cj.skce(smooth, cj.Poisson(rates, max_count=64), jnp.array([0, 1, 2]))

        return jax.grad(loss)(rates)

    rates, step = jnp.array([0.0, 1.0, 2.0]), 1e-5
    hessian = jax.jit(jax.jacfwd(gradient))(rates)
    for i in (1, 2):
        ahead, behind = (gradient(rates.at[i].add(sign * step)) for sign in (1, -1))
        np.testing.assert_allclose(hessian[:, i], (ahead - behind) / (2 * step), atol=1e-8)
    ahead = [gradient(rates.at[0].add(k * step)) for k in range(3)]
    expected = (-3 * ahead[0] + 4 * ahead[1] - ahead[2]) / (2 * step)
    np.testing.assert_allclose(hessian[:, 0], expected, atol=1e-6)


@pytest.mark.slow
def test_tiny_rates_and_masked_huge_rates():
    kernel, y = tensor(cj.EmbeddingDistance(rate)), jnp.array([0, 1, 2])
    zero, tiny = (cj.skce(kernel, cj.Poisson(jnp.array([r, 1.0, 2.0])), y) for r in (0.0, 5e-38))
    np.testing.assert_allclose(tiny, zero, rtol=1e-6)
    rates, where = jnp.array([1.0, 2.0, 3.0, 1e6]), jnp.arange(4) < 3
    found = cj.skce(kernel, cj.Poisson(rates), jnp.array([1, 2, 3, 0]), where=where)
    expected = cj.skce(kernel, cj.Poisson(rates[:3]), jnp.array([1, 2, 3]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_counts_beyond_int32():
    predictions, targets = cj.Poisson(jnp.array([1.0, 2.0])), np.array([2**31, 1], "uint32")
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.EmbeddingDistance(_rate)), cj.WhiteKernel())
    with pytest.raises(ValueError, match="targets must be counts 0, 1, …, 2147483647; row 0 is 21"):
        cj.skce(kernel, predictions, targets)
    assert jnp.isnan(jax.jit(cj.skce)(kernel, predictions, targets))
    largest = np.array([2**31 - 1, 1], "uint32")
    np.testing.assert_array_equal(
        cj.skce(kernel, predictions, largest), cj.skce(kernel, predictions, np.int32(largest))
    )
    assert jnp.all(predictions.supports(np.array([True, False]))[1])
    assert jnp.all(predictions.supports(np.array([127, 0], "int8"))[1])


def _rate(p):
    return p.rate
