r"""Parts of the unit line, and how far the mass of a row in them varies as the row is seen.

As a row is seen up to the place a, the conditional mean of 1{l < U <= h} is a martingale with steps

    s(u) = -(h - l) / (1 - u) for u <= l,    (1 - h) / (1 - u) for l < u <= h,    0 behind h

where U is u, and the compensators of these.  So whatever the law of a is, if it is independent of
U, the mass less its mean h - l has the variance

    E int_0^min(a, U) s(u)^2 du / (1 - u).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax.scores import PITInterval


class Parts(NamedTuple):
    """Parts (l, h] of the unit line, as numbers of points of a grid, ``[k]`` each."""

    first: jax.Array
    last: jax.Array

    def of(self, below: jax.Array) -> jax.Array:
        """What is in the parts, from what is below each point of the grid ``[…, g]``."""
        return below[..., self.last] - below[..., self.first]


def variation(hidden: PITInterval, grid: jax.Array, parts: Parts, of_draws: jax.Array) -> jax.Array:
    """The integrals for rows that are seen up to the interval where they are hidden, ``[n, k]``.

    Rows that are censored on the left are mirrored.  A row that is hidden between two numbers has
    the variance of its draws.
    """
    low, high = (grid[x][None] for x in parts)
    p, q = hidden.low[:, None], hidden.high[:, None]
    from_left, from_right = _steps(p, low, high), _steps(1 - q, 1 - high, 1 - low)
    return jnp.where(q >= 1, from_left, jnp.where(p <= 0, from_right, of_draws))


def _steps(a: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """The integral of s(u)^2 / (1 - u) up to a."""

    def half_square(numerator: jax.Array, u: jax.Array) -> jax.Array:
        return jnp.square(numerator / jnp.where(u < 1, 1 - u, 1.0)) / 2

    before, within = jnp.minimum(a, low), jnp.clip(a, low, high)
    of_before = half_square(high - low, before) - jnp.square(high - low) / 2
    return of_before + half_square(1 - high, within) - half_square(1 - high, low)
