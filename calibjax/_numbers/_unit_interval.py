"""Intervals of the unit line, of which both tails keep their digits, and normal scores."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri


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

    def at(self, share: float) -> tuple[jax.Array, jax.Array]:
        """The point at a share of the width, from 0 at low to 1 at high, and what is above it."""
        width = self.width()
        return self.low + share * width, self.above_high + (1 - share) * width


def interval(low: jax.Array, high: jax.Array) -> UnitInterval:
    """Intervals that are known by their ends alone."""
    return UnitInterval(low, high, 1 - low, 1 - high)


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
