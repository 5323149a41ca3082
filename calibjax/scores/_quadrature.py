r"""The continuous ranked probability score of real numbers, from the cdf alone.

With any location m it is the sum of three integrals, each of a function that decreases smoothly
from m to the end of the interval:

.. math::
    \int_{-\infty}^m F^2 + \int_m^\infty (1 - F)^2 + \int_m^y (2 F - 1).

A point at the share s of the way from m to m + g is x = m + g s.  With a scale c, the points of the
double exponential rule are evenly spaced in t, where

.. math::
    s = E / (a + b E), \quad E = \exp(\tfrac{\pi}{2} \sinh t).

For a half-line g is c, a = 1 and b = 0; for an interval of length L to the end of the support g is
c, a = 1 and b = c / L, and s goes from 0 to L / c; for the interval to y, g is y - m, b = 1 and
a = 1 + |g| / c.  Points are dense near both ends, where F may be singular, and at the distance c
from m.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._distribution import Distribution
from calibjax._sharding import as_varying
from calibjax._struct import struct

# The distance of points in t, and the last t: exp(-pi / 2 sinh t) is less than the rounding error.
_STEP = {"float32": 0.15, "float64": 0.075}
_END = {"float32": 3.1, "float64": 3.9}


@struct
class _Interval:
    """Where a tail of F is integrated, for each row: from m to `end`, by way of m + gap s."""

    gap: jax.Array
    a: jax.Array
    b: jax.Array
    end: jax.Array
    is_below: jax.Array


def crps_of_numbers(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """The score ``[n]`` of predictions that have a cdf and quantiles at the levels 0 and 1."""
    dtype = targets.dtype
    fixed = lax.stop_gradient(predictions)
    # The score does not depend on where the integral is cut, and has no derivative in it.
    center, spread = (lax.stop_gradient(x) for x in (fixed.location(), fixed.spread()))
    spread = jnp.where(spread > 0, spread, 1.0)
    below = _to_end_of_support(center, spread, -1.0, fixed.quantile(jnp.zeros((), dtype)))
    above = _to_end_of_support(center, spread, 1.0, fixed.quantile(jnp.ones((), dtype)))
    gap = targets - center
    between = _Interval(
        gap=gap,
        a=lax.stop_gradient(1 + jnp.abs(gap) / spread),
        b=jnp.ones_like(gap),
        end=targets,
        is_below=gap < 0,
    )
    score = -2 * _integral(predictions, center, between, lambda tail: tail)[0]
    score += jnp.where(gap < 0, -gap, gap)
    for interval in (below, above):
        squares, last = _integral(predictions, center, interval, jnp.square)
        # If the last point still counts, the tail is heavier than |x|^(-3/4).
        converged = last <= np.sqrt(jnp.finfo(dtype).eps) * squares
        score += jnp.where(converged, squares, jnp.nan)
    return score


def _to_end_of_support(
    center: jax.Array, spread: jax.Array, sign: float, end: jax.Array
) -> _Interval:
    length = sign * (end - center)
    finite = jnp.isfinite(length) & (length > 0)
    return _Interval(
        gap=sign * spread,
        a=jnp.ones_like(spread),
        b=jnp.where(finite, spread / jnp.where(finite, length, 1.0), 0.0),
        end=jnp.where(finite, end, center),
        is_below=jnp.full(spread.shape, sign < 0),
    )


def _integral(
    predictions: Distribution,
    center: jax.Array,
    interval: _Interval,
    power: Callable[[jax.Array], jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """The integral of a power of the tail, P(Y <= x) below m and P(Y > x) above, and its last term.

    The derivative evaluates each point again instead of storing it.
    """
    i, dtype = interval, str(center.dtype)
    t = np.arange(-(_END[dtype] // _STEP[dtype]), _END[dtype] // _STEP[dtype] + 1) * _STEP[dtype]
    factors = np.exp(np.pi / 2 * np.sinh(t))
    weights = _STEP[dtype] * np.pi / 2 * np.cosh(t)

    @jax.checkpoint
    def term(factor, weight):
        share = factor / (i.a + i.b * factor)
        left = i.a / (i.a + i.b * factor)
        # Near the end the way that is left keeps more digits than the way that is made.
        near_end = i.b * share > 0.5
        x = jnp.where(near_end, i.end - (i.end - center) * left, center + i.gap * share)
        cdf = predictions.cdf(x)
        return weight * share * left * power(jnp.where(i.is_below, cdf, 1 - cdf))

    def step(sums, point):
        new = term(*point)
        return (sums[0] + new, new), None

    zeros = as_varying((jnp.zeros_like(center),) * 2, (predictions, center, interval))
    points = jnp.asarray(factors, center.dtype), jnp.asarray(weights, center.dtype)
    sums, _ = lax.scan(step, zeros, points)
    length = jnp.where(i.is_below, -i.gap, i.gap)
    return length * sums[0], length * sums[1]
