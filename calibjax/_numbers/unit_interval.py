"""Intervals of the unit line, normal scores, and levels of quantiles, found from a cdf."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.struct import is_array, widest_dtype
from calibjax._numbers.validity import PROBABILITY, valid_or_nan


class UnitInterval(NamedTuple):
    """Intervals [low, high] of the unit line, and how much of the line is above either end.

    ``above_low`` is 1 - low, and ``above_high`` is 1 - high: near 1 they have the digits that low
    and high have lost.
    """

    low: jax.Array
    high: jax.Array
    above_low: jax.Array
    above_high: jax.Array

    def width(self) -> jax.Array:
        """high - low, from the tail that has more digits."""
        return jnp.where(self.low > 0.5, self.above_low - self.above_high, self.high - self.low)

    def middle(self) -> tuple[jax.Array, jax.Array]:
        """The middle, and how much of the line is above it."""
        return (self.low + self.high) / 2, (self.above_low + self.above_high) / 2

    def at(self, share: float) -> tuple[jax.Array, jax.Array]:
        """The point at a share of the width, from 0 at low to 1 at high, and what is above it."""
        width = self.width()
        return self.low + share * width, self.above_high + (1 - share) * width


def interval(low: jax.Array, high: jax.Array) -> UnitInterval:
    """Intervals that are known by their ends alone."""
    return UnitInterval(low, high, 1 - low, 1 - high)


# Near 0 and 1 cells of the line are as narrow as the tail is: 16 to each power of two.
_LEAST_POWER, _LOG_PARTS = -100, 4
_N_TAIL_CELLS = (-1 - _LEAST_POWER) << _LOG_PARTS


def cells_of_line(dtype: DTypeLike, pieces: Sequence[float] = ()) -> UnitInterval:
    """Cells of the unit line, with these ends, or so narrow that smooth functions hardly vary."""
    if pieces:
        line = jnp.array([0, *pieces, 1], dtype)
        return interval(line[:-1], line[1:])
    parts = 2**_LOG_PARTS
    powers = np.exp2(np.arange(_LEAST_POWER, -1))[:, None]
    ends = np.append((powers * (1 + np.arange(parts) / parts)[None]).ravel(), 0.5)
    ends[0] = 0
    low, high = ends[:-1], ends[1:]
    lower, upper = (low, high, 1 - low, 1 - high), (1 - high, 1 - low, high, low)
    both = zip(lower, upper, strict=True)
    return UnitInterval(*(jnp.asarray(np.concatenate(x), dtype) for x in both))


def cell_of_line(u: jax.Array, above: jax.Array, pieces: Sequence[float] = ()) -> jax.Array:
    """The number of the cell of u, from u and above = 1 - u."""
    if pieces:
        ends = jnp.expand_dims(jnp.array(pieces, u.dtype), range(u.ndim))
        return jnp.sum(u[..., None] > ends, axis=-1, dtype=jnp.int32)
    # The exponent and the first digits of a float32 are the first bits of it.
    bits = lax.bitcast_convert_type(jnp.minimum(u, above).astype(jnp.float32), jnp.int32)
    number = (bits >> (23 - _LOG_PARTS)) - ((127 + _LEAST_POWER) << _LOG_PARTS)
    number = jnp.clip(number, 0, _N_TAIL_CELLS - 1)
    return jnp.where(u < above, number, _N_TAIL_CELLS + number)


def normal_pit(z: jax.Array) -> UnitInterval:
    """The PIT P(Z <= z) of a standard normal Z."""
    u, above = ndtr(z), ndtr(-z)
    return UnitInterval(u, u, above, above)


@jax.jit  # its long program is traced once for each shape
def normal_score(u: jax.Array, above: jax.Array) -> jax.Array:
    """z with P(Z <= z) = u for a standard normal Z, from u and above = 1 - u.

    The ends of the line have the scores of the least normal number: -12.9 and 12.9 in float32.
    """
    is_low = u < 0.5
    z = _score_of_tail(jnp.where(is_low, u, above))
    return jnp.where(is_low, z, -z)


@jax.custom_jvp
def _score_of_tail(tail: jax.Array) -> jax.Array:
    return ndtri(jnp.maximum(tail, jnp.finfo(tail.dtype).tiny))


def _change_of_score(change: jax.Array, z: jax.Array, tail: jax.Array) -> jax.Array:
    """As P(Z <= z) = u, the density f gives f(z) dz = du; at the ends of the line z is constant."""
    inside = tail > jnp.finfo(tail.dtype).tiny
    return jnp.where(inside, math.sqrt(2 * math.pi) * jnp.exp(jnp.square(z) / 2), 0.0) * change


_score_of_tail.defjvps(_change_of_score)


D = TypeVar("D")


class HasCdf(Protocol):
    """Real predictions with a cdf and a density."""

    def cdf(self, targets: jax.Array) -> jax.Array: ...

    def log_prob(self, targets: jax.Array) -> jax.Array: ...


class HasQuantile(Protocol):
    """Predictions with quantiles."""

    def quantile(self, level: jax.Array) -> jax.Array: ...


def with_levels(predictions: D, level: ArrayLike) -> tuple[D, jax.Array]:
    """The predictions and the levels, a number or ``[n]``, as ``[n]``, in one floating dtype.

    A level outside [0, 1] is a ValueError, or NaN inside jit.
    """
    leaves = jax.tree.leaves(predictions)
    if not is_array(level):
        raise TypeError(f"level must be a number or an array [n], got {type(level).__name__}.")
    shape = leaves[0].shape[:1]
    if np.shape(level) not in ((), shape):
        raise ValueError(
            f"level must be a number or have shape {list(shape)} as the predictions, got shape "
            f"{list(np.shape(level))}."
        )
    # A Python number has no dtype of its own.
    dtype = widest_dtype(*leaves, *([level] if hasattr(level, "dtype") else []))
    predictions = jax.tree.map(lambda x: jnp.asarray(x, dtype), predictions)
    return predictions, jnp.broadcast_to(
        valid_or_nan(PROBABILITY, jnp.asarray(level, dtype), "level"), shape
    )


def falls_short(sums: jax.Array, level: jax.Array) -> jax.Array:
    """Whether sums of probabilities, in order, are below level times the last one but for rounding.

    0.07 times 100 samples is more than 7 in floating-point numbers, and so are sums of 0.07.
    """
    return sums < level * sums[..., -1:] * (1 - 4 * jnp.finfo(sums.dtype).eps)


def integer_or_invalid(level: jax.Array, found: jax.Array) -> jax.Array:
    """Labels or counts found at levels, as int32; -1, which is neither, where a level is NaN."""
    return jnp.where(jnp.isnan(level), -1, found.astype(jnp.int32))


def quantile_from_cdf(
    predictions: HasCdf, level: jax.Array, ends: tuple[float, float] = (-np.inf, np.inf)
) -> jax.Array:
    """The quantiles of real predictions at levels ``[n]``, from their `cdf` and `log_prob`.

    The derivative follows from F(q, a) = u for the level u and a parameter a:
    dF/dq dq + dF/da da = du, where dF/dq is the density, so that dq = (du - dF/da da) / density.
    At the levels 0 and 1 the quantiles are the `ends` of the support.
    """
    inner = jnp.where((level > 0) & (level < 1), level, 0.5)
    found = smallest_with(lambda y: predictions.cdf(y) >= inner, lax.stop_gradient(inner))
    density = lax.stop_gradient(jnp.exp(predictions.log_prob(found)))
    error = (inner - predictions.cdf(found)) / jnp.where(density > 0, density, 1.0)
    value = found + (error - lax.stop_gradient(error))
    value = jnp.where(level <= 0, ends[0], jnp.where(level >= 1, ends[1], value))
    return jnp.where(jnp.isnan(level), jnp.nan, value)


def cdf_from_quantile(predictions: HasQuantile, targets: jax.Array) -> jax.Array:
    """The cdf of real predictions at targets ``[n]``, from their `quantile`.

    The derivative follows from Q(u, a) = y for the target y and a parameter a:
    dQ/du du + dQ/da da = dy, so that du = (dy - dQ/da da) / (dQ/du); 0 at the levels 0 and 1.
    """

    def reaches_target(level: jax.Array) -> jax.Array:
        quantile = predictions.quantile(jnp.clip(level, 0, 1))
        return (level > 0) & ((level >= 1) | (quantile >= targets))

    found = jnp.clip(smallest_with(reaches_target, lax.stop_gradient(targets)), 0.0, 1.0)
    inside = (found > 0) & (found < 1)
    level = jnp.where(inside, found, 0.5)
    quantile, slope = jax.jvp(predictions.quantile, (level,), (jnp.ones_like(level),))
    has_slope = inside & (slope > 0) & jnp.isfinite(slope)
    error = (targets - quantile) / lax.stop_gradient(jnp.where(has_slope, slope, 1.0))
    return found + jnp.where(has_slope, error - lax.stop_gradient(error), 0.0)


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

    def holds(order: jax.Array) -> jax.Array:
        return condition(number(order))

    low, high = jnp.full(jnp.shape(like), -largest), jnp.full(jnp.shape(like), largest)
    return number(smallest_between(low, high, holds, jnp.iinfo(integer).bits))


def smallest_count_with(condition: Callable[[jax.Array], jax.Array], like: jax.Array) -> jax.Array:
    """The smallest int32 >= 0 that satisfies a condition, elementwise; else the largest int32.

    The condition must hold for all larger numbers too.  Bisection takes one step for each bit.

    Args:
        condition: an elementwise function of int32 numbers.
        like: an array in the shape of the result, whose dtype and values do not count.
    """
    low, limits = jnp.zeros(jnp.shape(like), jnp.int32), jnp.iinfo(jnp.int32)
    return smallest_between(low, jnp.full_like(low, limits.max), condition, limits.bits - 1)


def smallest_between(
    low: jax.Array, high: jax.Array, condition: Callable[[jax.Array], jax.Array], n_bits: int
) -> jax.Array:
    """The smallest integers from low to high that satisfy a condition, elementwise.

    The condition must hold for all larger integers too, and at high, if there are fewer than 2^n
    integers for the n bits.
    """

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        # The mean, rounded down, of two integers whose sum may overflow.
        middle = (low & high) + ((low ^ high) >> 1)
        holds = condition(middle)
        return jnp.where(holds, low, middle + 1), jnp.where(holds, middle, high)

    # `jax.shard_map` and a mesh with Explicit axes ask that a loop starts with arrays that vary as
    # those do with which it ends.
    holds = condition(low)
    ends = jnp.where(holds, low, low), jnp.where(holds, high, high)
    return lax.fori_loop(0, n_bits, halve, ends)[0]
