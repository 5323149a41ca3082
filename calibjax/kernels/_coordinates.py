"""Sums over coordinates, sum_c f(p_c - q_c), for all pairs of rows of two batches.

A reduction over the last axis of ``[S, T, m]`` is by far the slowest way to do this on a CPU.
Here the coordinates run in the outer loop and the ``[S, T]`` tile of pairs is the inner one, and
the derivative is arranged in the same way.  Tiles of the distances are built on it.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

# Coordinates added to the tile in one pass over it, and rows of the derivative made in one pass:
# measured at 10 and 100 coordinates, on tiles of 256 to 1024 rows.
_COORDINATES_PER_PASS = 5
_ROWS_PER_PASS = 16

Elementwise = Callable[[jax.Array], jax.Array]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def sum_over_coordinates(f: Elementwise, slope: Elementwise, ps: jax.Array, qs: jax.Array):
    """sum_c f(p_c - q_c) for p in ``[S, m]``, q in ``[T, m]``: shape ``[S, T]``.

    `f` is even with f(0) = 0, and `slope` is its derivative, odd.
    """
    m = ps.shape[1]
    # A loop of one pass would be unrolled into its surroundings, which is slower.
    passes = max(2, -(-m // _COORDINATES_PER_PASS))
    per_pass = -(-m // passes)
    padding = ((0, passes * per_pass - m), (0, 0))
    p, q = jnp.pad(ps.T, padding), jnp.pad(qs.T, padding)

    def add(i, tile):
        for c in range(per_pass):
            tile += f(p[i * per_pass + c][:, None] - q[i * per_pass + c][None, :])
        return tile

    start = jnp.zeros((ps.shape[0], qs.shape[0]), ps.dtype)
    return lax.fori_loop(0, passes, add, start)


@sum_over_coordinates.defjvp
def _sum_over_coordinates_jvp(f, slope, primals, tangents):
    (ps, qs), (dps, dqs) = primals, tangents
    # Two linear maps, each a loop over the rows of one side with the other side contiguous.
    # Transposed, each is a loop that adds into ``[m, T]``: no reduction over a last axis.
    tangent = _directional(slope, ps, qs, dps).T + _directional(slope, qs, ps, dqs)
    return sum_over_coordinates(f, slope, ps, qs), tangent


def _directional(slope: Elementwise, ps: jax.Array, qs: jax.Array, dps: jax.Array) -> jax.Array:
    """sum_c slope(p_c - q_c) dp_c for all pairs, q first: ``[T, S]``."""
    n_rows = qs.shape[0]
    per_pass = min(_ROWS_PER_PASS, n_rows)
    passes = -(-n_rows // per_pass)
    rows = jnp.pad(qs, ((0, passes * per_pass - n_rows), (0, 0)))
    p, dp = ps.T, dps.T

    # Recomputing the slopes in the transposed loop keeps it from storing m tiles of them.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def some_rows(_, some):
        return None, jnp.stack([jnp.sum(slope(p - q[:, None]) * dp, axis=0) for q in some])

    _, tile = lax.scan(some_rows, None, rows.reshape(passes, per_pass, -1))
    return tile.reshape(passes * per_pass, -1)[:n_rows]


def sign(x: jax.Array) -> jax.Array:
    """The sign of x with |x| <= 2, and 0 at 0, in three vector instructions; its derivative is 0.

    The scale lifts the smallest normal number to 1: whatever is not 0 is clipped to 1 or -1.
    """
    return lax.stop_gradient(jnp.clip(x / jnp.finfo(x.dtype).tiny, -1, 1))
