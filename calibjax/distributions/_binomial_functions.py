"""Binomial probabilities and tails, without a cancellation, and draws of up to 2^30 trials.

`jax.random.binomial` compares probabilities as differences of large logarithms: in float32 it is
wrong for more than some 10^6 trials.

With k successes and r = n - k failures, P(Y = k) is the largest probability of any distribution at
k, that of k / n, times exp(-D): the deviance D = k log(k / (n p)) + r log(r / (n (1 - p))) is a sum
of two terms that are 0 at k = n p (Loader, Fast and accurate computation of binomial probabilities,
2000).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from calibjax._numbers import log1p_beyond_linear, log_gamma_ratio
from calibjax.distributions._incomplete_beta import beta_tails

# Where a function less its linear part is a series.
_NEAR = 0.5


@jax.custom_jvp
def log_probability(count: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """log P(Y = count), -inf for counts that are not in 0 … total."""
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k > 0) & (rest > 0)
    a, b = jnp.where(inside, k, 1.0), jnp.where(inside, rest, 1.0)
    n = a + b
    excess = a - n * p
    deviance = _excess_deviance(a, n * p, excess) + _excess_deviance(b, n * (1 - p), -excess)
    log_largest = log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(n)
    log_largest += jnp.log(n) - jnp.log(a) - jnp.log(b)
    at_end = jnp.where(k == 0, special.xlog1py(total, -p), special.xlogy(total, p))
    at_end = jnp.where((k < 0) | (rest < 0), -jnp.inf, at_end)
    return jnp.where(inside, log_largest - deviance, at_end)


@log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative in p is k / p - r / (1 - p) = (k - n p) / (p (1 - p))."""
    (count, total, p), (_, _, dp) = primals, tangents
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k > 0) & (rest > 0)
    of_inside = (k - total * p) / jnp.where(inside, p * (1 - p), 1.0)
    at_end = jnp.where(k == 0, -total / (1 - p), total / p)
    at_end = jnp.where(total > 0, at_end, 0.0)
    return log_probability(count, total, p), jnp.where(inside, of_inside, at_end) * dp


@jax.custom_jvp
def probability(count: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """P(Y = count), 0 for counts that are not in 0 … total."""
    return jnp.exp(log_probability(count, total, p))


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative in p is P(Y = k) (k - n p) / (p (1 - p)).

    It is also n (P(Y' = k - 1) - P(Y' = k)) for the count Y' of n - 1 trials, which for p = 0 is n
    at k = 1 and -n at k = 0, and for p = 1 it is n at k = n and -n at k = n - 1.
    """
    (count, total, p), (_, _, dp) = primals, tangents
    value = probability(count, total, p)
    k = count.astype(p.dtype)
    variance = p * (1 - p)
    of_inside = value * ((k - total * p) / jnp.where(variance > 0, variance, 1.0))
    up, down = jnp.where(p < 0.5, 1.0, total), jnp.where(p < 0.5, 0.0, total - 1)
    of_end = jnp.where(k == up, total, 0.0) - jnp.where(k == down, total, 0.0)
    return value, jnp.where(variance > 0, of_inside, of_end) * dp


@jax.custom_jvp
def tails(count: jax.Array, total: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Y <= count) and P(Y > count), which is P(B <= p) for a beta variable B.

    B is the one of n uniform numbers that has count of them below it.
    """
    k, rest = count.astype(p.dtype), total - count.astype(p.dtype)
    inside = (k >= 0) & (rest > 0)
    above, up_to = beta_tails(jnp.where(inside, k, 0.0) + 1, jnp.where(inside, rest, 1.0), p)
    return (
        jnp.where(inside, up_to, jnp.where(k < 0, 0.0, 1.0)),
        jnp.where(inside, above, jnp.where(k < 0, 1.0, 0.0)),
    )


@tails.defjvp
def _tails_jvp(primals, tangents):
    """The derivative of P(Y > k) in p is n P(Y' = k) = r P(Y = k) / (1 - p), n at p = 1 = r.

    It is the sum of the derivatives of P(Y = j) over j > k, where all other terms cancel.
    """
    (count, total, p), (_, _, dp) = primals, tangents
    rest = total - count.astype(p.dtype)
    below_one = p < 1
    slope = rest * probability(count, total, p) / jnp.where(below_one, 1 - p, 1.0)
    slope = jnp.where(below_one, slope, jnp.where(rest == 1, total, 0.0)) * dp
    return tails(count, total, p), (-slope, slope)


def _excess_deviance(k: jax.Array, mean: jax.Array, excess: jax.Array) -> jax.Array:
    """k log(k / mean) - excess, for excess = k - mean, given with all its digits, and k > 0."""
    ratio = -excess / k
    near = jnp.abs(ratio) < _NEAR
    of_near = -k * log1p_beyond_linear(jnp.where(near, ratio, 0.0))
    return jnp.where(near, of_near, k * (jnp.log(k) - jnp.log(mean)) - excess)


# Fewer successes than this, on average, are counted one by one; the rejection needs as many.
_FEW = 10.0
# Further from the mean than any count.
_FAR = 2.0**30 - 2.0**6


def draw(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """A count for each total and probability, int32; -1 where these are NaN."""
    of_few, of_many = jax.random.split(key)
    invalid = jnp.isnan(total) | jnp.isnan(p)
    total, p = jnp.where(invalid, 0.0, total), jnp.where(invalid, 0.0, p)
    # The rarer outcome is counted.
    is_mirrored = p > 0.5
    rare = jnp.where(is_mirrored, 1 - p, p)
    few = total * rare < _FEW
    count = jnp.where(
        few,
        _by_gaps(of_few, jnp.where(few, total, 0.0), rare),
        _by_rejection(of_many, jnp.where(few, 4 * _FEW, total), jnp.where(few, 0.5, rare)),
    )
    count = jnp.where(is_mirrored, total.astype(jnp.int32) - count, count)
    return jnp.where(invalid, -1, count)


def _by_gaps(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """The number of successes from the numbers of trials up to each, which are geometric."""
    log_failure = jnp.log1p(-p)

    def step(state):
        key, trial, count = state
        key, own = jax.random.split(key)
        gap = jnp.ceil(jnp.log(jax.random.uniform(own, p.shape, p.dtype)) / log_failure)
        trial = trial + gap
        return key, trial, count + (trial <= total).astype(jnp.int32)

    start = key, jnp.zeros_like(total), jnp.zeros_like(total, jnp.int32)
    return lax.while_loop(lambda state: jnp.any(state[1] <= total), step, start)[2]


def _by_rejection(key: jax.Array, total: jax.Array, p: jax.Array) -> jax.Array:
    """Transformed rejection with a squeeze, BTRS, for means of at least 10 and p <= 1/2.

    Hörmann, The generation of binomial random variates, Journal of Statistical Computation and
    Simulation 1993.  Counts are int32 numbers from the mode, so that none is rounded.
    """
    mean = total * p
    deviation = jnp.sqrt(mean * (1 - p))
    mode = jnp.floor(mean + p)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha = (2.83 + 5.1 / b) * deviation
    enough = 0.92 - 4.2 / b
    center = mean - mode + 0.5
    at_mode = log_probability(mode, total, p)

    def step(state):
        key, count, accepted = state
        key, of_u, of_v = jax.random.split(key, 3)
        u = jax.random.uniform(of_u, p.shape, p.dtype) - 0.5
        v = jax.random.uniform(of_v, p.shape, p.dtype)
        margin = 0.5 - jnp.abs(u)
        step_from_mode = jnp.floor((2 * a / margin + b) * u + center)
        k = mode.astype(jnp.int32) + jnp.clip(step_from_mode, -_FAR, _FAR).astype(jnp.int32)
        log_ratio = log_probability(k, total, p) - at_mode
        accept = jnp.log(v * alpha / (a / jnp.square(margin) + b)) < log_ratio
        accept |= (margin >= 0.07) & (v <= enough)
        return key, jnp.where(accepted, count, k), accepted | accept

    start = key, jnp.zeros_like(total, jnp.int32), total < 0
    return lax.while_loop(lambda state: ~jnp.all(state[2]), step, start)[1]
