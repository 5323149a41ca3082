"""The CRPS of *one* prediction whose cdf is piecewise linear, with exponential tails."""

import jax
import jax.numpy as jnp


def crps(
    values: jax.Array,
    levels: jax.Array,
    scales: tuple[jax.Array, jax.Array, jax.Array],
    y: jax.Array,
) -> jax.Array:
    """The integral of (F - 1{y <= x})^2, for F with the levels ``[K]`` at the values ``[K]``.

    `scales` are the scale of the lower tail, the slopes of the pieces of the quantile function,
    ``[K - 1]``, and the scale of the upper tail.  Where F is linear, the integral of F^2 from a to
    b is (b - a) (F(a)^2 + F(a) F(b) + F(b)^2) / 3.
    """
    first, slopes, last = scales
    low, high = values[:-1], values[1:]
    cut = jnp.clip(y, low, high)
    at_cut = levels[:-1] + (cut - low) / jnp.where(slopes > 0, slopes, 1.0)
    below = (cut - low) * mean_square(levels[:-1], at_cut)
    above = (high - cut) * mean_square(1 - at_cut, 1 - levels[1:])
    tails = _tail(levels[0], first, values[0] - y) + _tail(1 - levels[-1], last, y - values[-1])
    return jnp.sum(below + above) + tails


def mean_square(start: jax.Array, end: jax.Array) -> jax.Array:
    """The mean of the square of what is linear, from its values at both ends."""
    return (jnp.square(start) + start * end + jnp.square(end)) / 3


def _tail(mass: jax.Array, scale: jax.Array, excess: jax.Array) -> jax.Array:
    """The integral over a tail with P(excess > t) = mass exp(-t / scale).

    Without a target in the tail it is that of the square of this probability, mass^2 scale / 2.  A
    target at e > 0 adds the integral of 1 - 2 mass exp(-t / scale) over t from 0 to e.
    """
    excess = jnp.maximum(excess, 0.0)
    fallen = jnp.where(scale > 0, -jnp.expm1(-excess / jnp.where(scale > 0, scale, 1.0)), 1.0)
    return jnp.square(mass) * scale / 2 + excess - 2 * mass * scale * fallen
