"""Draws from binomial laws of up to 2^30 trials, in float32 too.

`jax.random.binomial` compares probabilities as differences of large logarithms: in float32 it is
wrong for more than some 10^6 trials.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax.distributions._binomial._probability import log_probability

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
        key, place, count = state
        key, own = jax.random.split(key)
        gap = jnp.ceil(jnp.log(jax.random.uniform(own, p.shape, p.dtype)) / log_failure)
        place = place + gap
        return key, place, count + (place <= total).astype(jnp.int32)

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
        place = jnp.floor((2 * a / margin + b) * u + center)
        k = mode.astype(jnp.int32) + jnp.clip(place, -_FAR, _FAR).astype(jnp.int32)
        log_ratio = log_probability(k, total, p) - at_mode
        accept = jnp.log(v * alpha / (a / jnp.square(margin) + b)) < log_ratio
        accept |= (margin >= 0.07) & (v <= enough)
        return key, jnp.where(accepted, count, k), accepted | accept

    start = key, jnp.zeros_like(total, jnp.int32), total < 0
    return lax.while_loop(lambda state: ~jnp.all(state[2]), step, start)[1]
