"""Intervals of the unit line, of which both tails keep their digits, and normal scores."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jax.typing import DTypeLike


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
        of_upper = self.above_low - self.above_high
        return jnp.where(self.low > 0.5, of_upper, self.high - self.low)

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


@_score_of_tail.defjvp
def _score_of_tail_jvp(tails, tangents):
    """As P(Z <= z) = u, the density f gives f(z) dz = du; at the ends of the line z is constant."""
    (tail,), (tangent,) = tails, tangents
    z = _score_of_tail(tail)
    inside = tail > jnp.finfo(tail.dtype).tiny
    slope = jnp.where(inside, math.sqrt(2 * math.pi) * jnp.exp(jnp.square(z) / 2), 0.0)
    return z, slope * tangent
