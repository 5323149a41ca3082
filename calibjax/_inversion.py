"""Quantiles of predictions that have a cdf: the inverse of a nondecreasing function."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution


def quantile_from_cdf(predictions: Distribution, level: jax.Array) -> jax.Array:
    """The quantiles of real predictions at levels ``[n]``, from their `cdf` and `log_prob`.

    The derivative follows from F(q, a) = u for the level u and a parameter a:
    dF/dq dq + dF/da da = du, where dF/dq is the density, hence dq = (du - dF/da da) / density.
    """
    found = smallest_with(lambda y: predictions.cdf(y) >= level, lax.stop_gradient(level))
    density = lax.stop_gradient(jnp.exp(predictions.log_prob(found)))
    error = (level - predictions.cdf(found)) / jnp.where(density > 0, density, 1.0)
    return found + (error - lax.stop_gradient(error))


def smallest_with(condition: Callable[[jax.Array], jax.Array], like: jax.Array) -> jax.Array:
    """The smallest finite numbers that satisfy a condition, elementwise; else the largest number.

    The condition must hold for all larger numbers too.  Bisection takes one step for each bit of a
    number, because the order of the bits, read as an integer, is the order of the numbers.

    Args:
        condition: an elementwise function of numbers.
        like: an array in the shape and the dtype of the result, whose values do not count.
    """
    dtype = jnp.result_type(like)
    integer = jnp.int64 if dtype == jnp.float64 else jnp.int32
    largest = lax.bitcast_convert_type(jnp.finfo(dtype).max.astype(dtype), integer)

    def number(order: jax.Array) -> jax.Array:
        # Negative numbers are larger the smaller their bits are.
        bits = jnp.where(order < 0, jnp.iinfo(integer).min - order, order)
        return lax.bitcast_convert_type(bits, dtype)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        # The mean, rounded down, of two integers whose sum may overflow.
        middle = (low & high) + ((low ^ high) >> 1)
        holds = condition(number(middle))
        return jnp.where(holds, low, middle + 1), jnp.where(holds, middle, high)

    ends = jnp.full(jnp.shape(like), -largest), jnp.full(jnp.shape(like), largest)
    low, _ = lax.fori_loop(0, jnp.iinfo(integer).bits, halve, ends)
    return number(low)
