"""Poisson probabilities, elementwise, without a cancellation."""

import math

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax._numbers import MANY_COUNTS, stirling_remainder
from calibjax.distributions._gamma import gamma_tails

_LOG_FACTORIALS = [math.log(math.factorial(k)) for k in range(MANY_COUNTS)]
# At a smaller rate, 16 or more counts have the probability 0 in float64.
_TINY_RATE = 1e-30


@jax.custom_jvp
def probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    few = jnp.exp(-rate)
    for j in range(1, MANY_COUNTS):
        few *= jnp.where(k >= j, rate / j, 1.0)
    large = jnp.maximum(k, MANY_COUNTS)
    many = jnp.exp(_log_relative_to_stirling(large, rate)) / jnp.sqrt(2 * jnp.pi * large)
    return jnp.where(k < MANY_COUNTS, few, many)


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative of rate^k exp(-rate) / k! in the rate is P(Z = k - 1) - P(Z = k).

    This form is exact and finite at rate 0, where log(rate) has no derivative.
    """
    (count, rate), (_, tangent) = primals, tangents
    value = probability(count, rate)
    before = jnp.where(count > 0, probability(jnp.maximum(count - 1, 0), rate), 0.0)
    return value, (before - value) * tangent


@jax.custom_jvp
def tails(count: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Z <= count) and P(Z > count), elementwise; each has all its digits.

    Z > count if the time of event count + 1, which has a gamma distribution, is below the rate.
    Negative counts have 0 and 1.
    """
    above, up_to = gamma_tails(jnp.maximum(count, 0).astype(rate.dtype) + 1, rate)
    is_negative = count < 0
    return jnp.where(is_negative, 0.0, up_to), jnp.where(is_negative, 1.0, above)


@tails.defjvp
def _tails_jvp(primals, tangents):
    """The derivative of P(Z > count) in the rate is P(Z = count), also at rate 0."""
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count < 0, 0.0, probability(jnp.maximum(count, 0), rate)) * tangent
    return tails(count, rate), (-slope, slope)


@jax.custom_jvp
def log_probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """log P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    # gammaln(1) is not quite 0, and P(Z != 0) may be smaller than its error.
    log_factorials = jnp.asarray(_LOG_FACTORIALS, k.dtype)[jnp.clip(count, 0, MANY_COUNTS - 1)]
    log_factorial = jnp.where(k < MANY_COUNTS, log_factorials, special.gammaln(k + 1))
    few = special.xlogy(k, rate) - rate - log_factorial
    large = jnp.maximum(k, MANY_COUNTS)
    many = _log_relative_to_stirling(large, rate) - jnp.log(2 * jnp.pi * large) / 2
    return jnp.where((k < MANY_COUNTS) | (rate < _TINY_RATE), few, many)


@log_probability.defjvp
def _log_probability_jvp(primals, tangents):
    """The derivative of k log(rate) - rate - log k! in the rate is k / rate - 1.

    For k = 0 it is -1, also at rate 0, where the derivative of k log(rate) is 0 / 0.
    """
    (count, rate), (_, tangent) = primals, tangents
    slope = jnp.where(count > 0, count.astype(rate.dtype) / rate, 0.0) - 1
    return log_probability(count, rate), slope * tangent


def _log_relative_to_stirling(k: jax.Array, rate: jax.Array) -> jax.Array:
    """log(P(Z = k) sqrt(2 pi k)) for k >= 16, where log(rate^k exp(-rate) / k!) would cancel.

    With x = (k - rate) / rate it is -rate ((1 + x) log(1 + x) - x) minus the remainder of
    Stirling's formula, log(k! / (sqrt(2 pi k) k^k exp(-k))) (Loader, Fast and accurate computation
    of binomial probabilities, 2000).
    """
    rate = jnp.maximum(rate, _TINY_RATE)
    x = (k - rate) / rate
    return -rate * ((1 + x) * jnp.log1p(x) - x) - stirling_remainder(k)
