"""The cells between the times of *one* survival curve, in which it is linear."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.struct import struct
from calibjax._numbers import UnitInterval
from calibjax.distributions._quantiles import mean_square


@struct
class Cells:
    """P(start < Y <= end) of K cells from 0 to the last time, and what is left for later.

    Args:
        ends: 0 and the K times, ``[K + 1]``.
        above: P(Y > end) at the K + 1 ends, and 0, ``[K + 2]``.
    """

    ends: jax.Array
    above: jax.Array

    @property
    def below(self) -> jax.Array:
        """P(Y <= end) at the K + 1 ends, and 1, ``[K + 2]``."""
        return 1 - self.above

    @property
    def masses(self) -> jax.Array:
        """The probabilities of the K cells and of what is later, ``[K + 1]``."""
        return self.above[:-1] - self.above[1:]

    def number(self, y: jax.Array) -> jax.Array:
        """The cell of a target, from 0; K for one after the last time."""
        return jnp.searchsorted(self.ends[1:], y, side="left").astype(jnp.int32)

    def interval(self, y: jax.Array) -> UnitInterval:
        """Where U is, given the cell of a target."""
        k, below = self.number(y), self.below
        return UnitInterval(below[k], below[k + 1], self.above[k], self.above[k + 1])

    def tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """P(Y <= y) and P(Y > y), which stay what they are at the last time until y is infinite."""
        k, n_cells = self.number(y), self.ends.size - 1
        start, end = self.ends[k], self.ends[jnp.minimum(k + 1, n_cells)]
        width = jnp.where(end > start, end - start, 1.0)
        share = (jnp.clip(y, start, end) - start) / width
        # In a cell without width, which is that of time 0, all is below the target.
        share = jnp.where((end == start) & (y >= 0), 1.0, share)
        share = jnp.where((k == n_cells) & (y < jnp.inf), 0.0, share)
        below, above = ((1 - share) * x[k] + share * x[k + 1] for x in (self.below, self.above))
        return below, above

    def log_prob(self, y: jax.Array) -> jax.Array:
        """The log density in a cell; the log probability of time 0, and of what is later."""
        k = self.number(y)
        width = jnp.pad(jnp.diff(self.ends), (0, 1), constant_values=1.0)[k]
        mass = self.masses[k]
        is_possible = (mass > 0) & (y >= 0)
        log_mass = jnp.log(jnp.where(is_possible, mass, 1.0))
        value = log_mass - jnp.log(jnp.where(width > 0, width, 1.0))
        return jnp.where(is_possible, value, -jnp.inf)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The smallest y with P(Y <= y) >= level, inf if it is later than the last time."""
        below, n_cells = self.below[:-1], self.ends.size - 1
        k = jnp.searchsorted(below[1:], level, side="left").astype(jnp.int32)
        inside = jnp.minimum(k, n_cells - 1)
        start, end = self.ends[inside], self.ends[inside + 1]
        mass = below[inside + 1] - below[inside]
        share = (level - below[inside]) / jnp.where(mass > 0, mass, 1.0)
        # The start itself belongs to the cell before.
        first = jnp.where(inside == 0, 0.0, jnp.minimum(jnp.nextafter(start, end), end))
        y = jnp.clip(start + share * (end - start), first, end)
        return jnp.where(jnp.isnan(level), jnp.nan, jnp.where(k == n_cells, jnp.inf, y))

    def moments(self) -> tuple[jax.Array, jax.Array]:
        """The mean and the variance of min(Y, last time), in units of the last time."""
        ends = self.ends / self.ends[-1]
        widths, middles = jnp.diff(ends), (ends[1:] + ends[:-1]) / 2
        mean = jnp.sum(widths * (self.above[:-2] + self.above[1:-1]) / 2)
        squares = jnp.square(middles - mean) + jnp.square(widths) / 12
        rest = self.above[-2] * jnp.square(1 - mean)
        return mean, jnp.sum(self.masses[:-1] * squares) + rest

    def crps(self, y: jax.Array) -> jax.Array:
        """The integral of (F(t) - 1{y <= t})^2 over t from 0 to the last time."""
        start, end = self.ends[:-1], self.ends[1:]
        cut = jnp.clip(y, start, end)
        share = (cut - start) / jnp.where(end > start, end - start, 1.0)
        below, above = self.below[:-1], self.above[:-1]
        below_cut, above_cut = (x[:-1] + share * (x[1:] - x[:-1]) for x in (below, above))
        squares = (cut - start) * mean_square(below[:-1], below_cut)
        return jnp.sum(squares + (end - cut) * mean_square(above_cut, above[1:]))

    def mean_absolute_difference(self, other: "Cells") -> jax.Array:
        """E|Z - Z'| up to the last time, the integral of F (1 - G) + G (1 - F)."""
        ends = jnp.minimum(jnp.sort(jnp.append(self.ends, other.ends)), self.ends[-1])
        at = ends[:-1], (ends[:-1] + ends[1:]) / 2, ends[1:]

        def values(y: jax.Array) -> jax.Array:
            (f, above_f), (g, above_g) = (jax.vmap(c.tails)(y) for c in (self, other))
            return f * above_g + g * above_f

        # Simpson's rule is exact.  A curve jumps only at 0, where this integral has no part.
        first, middle, last = map(values, at)
        return jnp.sum(jnp.diff(ends) * (first + 4 * middle + last) / 6)


def cells_of(times: jax.Array, survival: jax.Array) -> Cells:
    """The cells of a curve at times ``[K]``, in which nothing that rounding has raised rises."""
    falling = lax.cummin(jnp.clip(survival, 0.0, 1.0))
    return Cells(jnp.pad(times, (1, 0)), jnp.pad(falling, 1, constant_values=((1.0, 0.0),)))
