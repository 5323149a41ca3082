"""Lines through points, one for all rows or one of each."""

import jax
import jax.numpy as jnp


def interpolated(x: jax.Array, y: jax.Array, at: jax.Array) -> jax.Array:
    """Lines through points with increasing x and y ``[K]``, at ``[L]``.

    Each may be one for all rows, or of rows ``[n, …]``; the result is ``[n, L]`` then.  Beyond the
    points the first and the last piece go on.
    """
    axes = tuple(0 if part.ndim == 2 else None for part in (x, y, at))
    if axes == (None, None, None):
        return _interpolated(x, y, at)
    return jax.vmap(_interpolated, in_axes=axes)(x, y, at)


def _interpolated(x: jax.Array, y: jax.Array, at: jax.Array) -> jax.Array:
    piece = jnp.clip(jnp.searchsorted(x, at, side="right") - 1, 0, x.size - 2)
    share = (at - x[piece]) / (x[piece + 1] - x[piece])
    return y[piece] + share * (y[piece + 1] - y[piece])
