"""What statistics have in common: moments of the residuals of rows, and sums of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._numbers import UnitInterval
from calibjax.features import DrawnPIT

#: Targets ``[n, D]``, their intervals of the unit line, or the places of targets and draws.
Sets = jax.Array | UnitInterval | DrawnPIT


class RowMoments(NamedTuple):
    """Moments of the residuals of each row under the model, and squares of the observed ones.

    Args:
        second: what the variances of the J statistics are made of, ``[n, A]``.
        third: what their third moments are made of, ``[n, B]``.
        squares: as `second`, of the observed residuals as they are multiplied.
        predicted: what is predicted of an observed mean, ``[n, J]``.
    """

    second: jax.Array
    third: jax.Array
    squares: jax.Array
    predicted: jax.Array


def bounded(residuals: jax.Array, most: float | tuple[float, ...]) -> jax.Array:
    """Residuals ``[…, K]``, no larger than `most` of each statistic."""
    limit = jnp.broadcast_to(jnp.asarray(most, residuals.dtype), residuals.shape)
    return jnp.clip(residuals, -limit, limit)


class Uncentred:
    """Statistics that are sums of residuals."""

    def centres(self, second: jax.Array) -> jax.Array:
        return jnp.zeros(second.shape[0], second.dtype)

    def centred(self, sums: jax.Array, c: jax.Array) -> jax.Array:
        return sums

    def squares(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x

    def cubes(self, x: jax.Array, c: jax.Array) -> jax.Array:
        return x

    def around_mean(self, sums: jax.Array, variance: jax.Array, known: jax.Array) -> jax.Array:
        return sums
