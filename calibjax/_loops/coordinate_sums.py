"""Sums over coordinates, sum_c f(p_c, q_c), for all pairs of rows of two batches.

A reduction over the last axis of ``[S, T, m]`` is by far the slowest way to do this on a CPU: there
the coordinates run in the outer loop and the ``[S, T]`` tile of pairs in the inner one.  On an
accelerator a tile in an outer loop goes through the memory each time; there a number of coordinates
are written out side by side, which the compiler puts into one kernel with all that follows.  The
derivative is arranged in the same spirit.  Tiles of the distances are built on it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import as_varying
from calibjax._numbers.arithmetic import dot


@jax.custom_batching.custom_vmap
def anywhere(condition: jax.Array) -> jax.Array:
    """The condition, which under `vmap` holds for the whole batch if it holds for any part of it.

    `lax.cond` of it makes one branch, where a condition for each part would make both.
    """
    return condition


@anywhere.def_vmap
def _anywhere_in_batch(size: int, is_batched: list[bool], condition: jax.Array):
    return anywhere(jnp.any(condition, axis=0)), False


# The number of coordinates, and of rows, of one pass over a tile on a CPU: the fastest,
# measured at 10 and 100 coordinates and 256 to 1024 rows.
_COORDINATES_PER_PASS = 5
_ROWS_PER_PASS = 16
# The number of coordinates of one pass on an accelerator, which fit into its registers.
_SIDE_BY_SIDE = 32

Elementwise = Callable[[jax.Array, jax.Array], jax.Array]
#: ``sums(f, slope, ps, qs) -> [S, T]``, see `sum_over_coordinates`.
CoordinateSums = Callable[[Elementwise, Elementwise, jax.Array, jax.Array], jax.Array]


def _sum_over_coordinates(f: Elementwise, slope: Elementwise, ps: jax.Array, qs: jax.Array):
    """sum_c f(p_c, q_c) for p in ``[S, m]``, q in ``[T, m]``: shape ``[S, T]``.

    `f` is a symmetric function of a difference with f(p, p) = 0, and `slope` is its derivative with
    respect to p, which has the other sign with respect to q.
    """
    m = ps.shape[1]
    # XLA unrolls a loop of one pass, and fuses it with what follows.  On a CPU that is slower: take
    # two passes at least.
    passes = max(2, -(-m // _COORDINATES_PER_PASS)) if on_cpu() else -(-m // _SIDE_BY_SIDE)
    per_pass = -(-m // passes)
    p, q = _with_zeros(ps.T, passes * per_pass), _with_zeros(qs.T, passes * per_pass)

    def add(c, tile):
        return tile + f(lax.reshape(_row(p, c), (ps.shape[0], 1)), _row(q, c))

    zeros = as_varying(jnp.zeros((ps.shape[0], qs.shape[0]), ps.dtype), (ps, qs))
    # The coordinates of a pass are written out in machine code, but lowered once.
    return lax.fori_loop(0, passes * per_pass, add, zeros, unroll=per_pass)


def _with_zeros(rows: jax.Array, n: int) -> jax.Array:
    """The rows, and rows of zeros behind them up to n rows."""
    return lax.pad(rows, jnp.zeros((), rows.dtype), ((0, n - rows.shape[0], 0), (0, 0, 0)))


def _row(x: jax.Array, index: jax.Array) -> jax.Array:
    """x[index][None] for an index from 0 on."""
    # `x[index]` would be seven more operations, for an index that may be negative.
    start: list[Any] = [index, *(np.zeros((), index.dtype),) * (x.ndim - 1)]
    return lax.dynamic_slice(x, start, (1, *x.shape[1:]), allow_negative_indices=False)


def row_at(x: jax.Array, index: jax.Array) -> jax.Array:
    """x[index] for an index from 0 on."""
    return lax.reshape(_row(x, index), x.shape[1:])


# The transpose that jax derives of these loops is several times slower.  What has been
# differentiated backwards can be differentiated again in any way.  Forward mode never comes first,
# because `ring_sum` differentiates sums of tiles by their gradients.
sum_over_coordinates = jax.custom_vjp(_sum_over_coordinates, nondiff_argnums=(0, 1))


def _forward(f, slope, ps, qs):
    return _sum_over_coordinates(f, slope, ps, qs), (ps, qs)


def _backward(f, slope, rows, cotangent):
    ps, qs = rows
    # Seen from the other side, the slope changes its sign.
    of_ps = _sum_of_slopes(slope, qs, ps, cotangent.T)
    of_qs = _sum_of_slopes(slope, ps, qs, cotangent)
    return -of_ps, -of_qs


sum_over_coordinates.defvjp(_forward, _backward)


def _sum_of_slopes(slope: Elementwise, ps: jax.Array, qs: jax.Array, weights: jax.Array):
    """sum_i weights_ij slope(p_ic, q_jc), ``[T, m]``."""
    of_platform = _slopes_in_passes if on_cpu() else _slopes_fused
    return of_platform(slope, ps, qs, weights)


def _slopes_in_passes(slope: Elementwise, ps: jax.Array, qs: jax.Array, weights: jax.Array):
    """A loop over p that adds into ``[m, T]``."""
    per_pass = min(_ROWS_PER_PASS, ps.shape[0])
    passes = -(-ps.shape[0] // per_pass)
    ps, weights = (_with_zeros(x, passes * per_pass) for x in (ps, weights))
    q = qs.T

    def add(k, total):
        p = lax.reshape(_row(ps, k), (q.shape[0], 1))
        return total + slope(p, q) * _row(weights, k)

    zeros = as_varying(jnp.zeros_like(q), (ps, qs, weights))
    return lax.fori_loop(0, passes * per_pass, add, zeros, unroll=per_pass).T


def _slopes_fused(slope: Elementwise, ps: jax.Array, qs: jax.Array, weights: jax.Array):
    """A sum of which no term is held."""

    def sum_coordinate(p, q):
        return jnp.sum(slope(p[:, None], q[None, :]) * weights, axis=0)

    return jax.vmap(sum_coordinate, in_axes=1, out_axes=1)(ps, qs)


# Squared distances to the first row up to which products of matrices are made.  Their rounding in
# float32 is then some 1e-6, and 1e-7 where predictions are about as far apart as a lengthscale.
_NEAR = 16


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def sum_of_squares_near_1(
    f: Elementwise, slope: Elementwise, ps: jax.Array, qs: jax.Array
) -> jax.Array:
    """`sum_over_coordinates` of squares, with an error of some roundings of 1 at most.

    |p - q|^2 = |p|^2 + |q|^2 - 2 <p, q> is a product of matrices, and so is its derivative.  A CPU
    makes it several times faster, but with no more digits than |p|^2 has, measured from the first
    row: where a row is far from it, the sum is made as always.
    """
    return _forward_near_1(f, slope, ps, qs)[0]


def _forward_near_1(f, slope, ps, qs):
    near_ps, near_qs = ps - qs[:1], qs - qs[:1]
    of_ps, of_qs = (jnp.sum(jnp.square(x), axis=1) for x in (near_ps, near_qs))

    is_far = anywhere(~(jnp.all(of_ps <= _NEAR) & jnp.all(of_qs <= _NEAR)))
    exactly = functools.partial(_sum_over_coordinates, f, slope)
    of_pairs = lax.cond(is_far, exactly, lambda ps, qs: dot(near_ps, -2 * near_qs.T), ps, qs)
    # Not in the branch, so that one loop makes sums and all that follows.
    of_ps, of_qs = (jnp.where(is_far, 0.0, x) for x in (of_ps, of_qs))
    return (of_ps[:, None] + of_qs[None, :]) + of_pairs, (is_far, ps, qs)


def _backward_near_1(f, slope, kept, cotangent):
    is_far, ps, qs = kept
    near_ps, near_qs = ps - qs[:1], qs - qs[:1]

    # XLA takes the layout of the loop for both branches, unless their results are transposed: at 64
    # rows of 100 numbers the gradient of `skce` takes an eighth longer then.
    def exactly(ps, qs, cotangent):
        of_ps, of_qs = _backward(f, slope, (ps, qs), cotangent)
        return of_ps.T, of_qs.T

    def by_product(ps, qs, cotangent):
        # sum_ij c_ij |p_i - q_j|^2 has the derivative 2 sum_j c_ij (p_i - q_j) in p_i.
        of_ps = jnp.sum(cotangent, axis=1)[:, None] * near_ps - dot(cotangent, near_qs)
        of_qs = jnp.sum(cotangent, axis=0)[:, None] * near_qs - dot(cotangent.T, near_ps)
        return 2 * of_ps.T, 2 * of_qs.T

    of_ps, of_qs = lax.cond(is_far, exactly, by_product, ps, qs, cotangent)
    return of_ps.T, of_qs.T


sum_of_squares_near_1.defvjp(_forward_near_1, _backward_near_1)


def square(p: jax.Array, q: jax.Array) -> jax.Array:
    """(p - q)^2."""
    return jnp.square(p - q)


def slope_of_square(p: jax.Array, q: jax.Array) -> jax.Array:
    """2 (p - q)."""
    return 2 * (p - q)


def distance(p: jax.Array, q: jax.Array) -> jax.Array:
    """|p - q|."""
    return jnp.abs(p - q)


def slope_of_distance(p: jax.Array, q: jax.Array) -> jax.Array:
    """The sign of p - q for |p - q| <= 2, and 0 at 0, without comparisons; its derivative is 0.

    The scale lifts the smallest normal number to 1: whatever is not 0 is clipped to 1 or -1.
    """
    lifted = (p - q) * (1 / jnp.finfo(p.dtype).tiny)
    return lax.stop_gradient(jnp.minimum(jnp.maximum(lifted, -1), 1))


def square_beyond_rounding(p: jax.Array, q: jax.Array) -> jax.Array:
    """(p - q)^2, and 0 for numbers that are equal up to rounding."""
    return jnp.square(_beyond_rounding(p, q))


def slope_of_square_beyond_rounding(p: jax.Array, q: jax.Array) -> jax.Array:
    """2 (p - q), and 0 for numbers that are equal up to rounding."""
    return 2 * _beyond_rounding(p, q)


def _beyond_rounding(p: jax.Array, q: jax.Array) -> jax.Array:
    # Once here, and not in each operation.
    p, q = jnp.broadcast_arrays(p, q)
    # The smaller of two numbers bounds the rounding, so that infinity is not near to a number.
    rounding = 2 * jnp.finfo(p.dtype).eps * jnp.minimum(jnp.abs(p), jnp.abs(q))
    difference = p - q
    same = (p == q) | (jnp.abs(difference) < rounding)
    return lax.select(same, jnp.zeros_like(difference), difference)


#: The arrays of a batch, ``[S, …]`` each.
Arrays = Sequence[jax.Array]


def row_by_row(function: Callable[..., jax.Array], left: Arrays, right: Arrays) -> jax.Array:
    """A function of pairs, coordinates first, for all pairs of two batches, ``[S, T]``.

    ``function(*ours, *theirs)`` takes arrays ``[d, …, pairs]``.  On a CPU it takes one row of the
    tile at a time: what it makes of the d numbers of each pair then stays in the nearest cache, and
    the loops run along the pairs.
    """
    right = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), right)

    @jax.checkpoint
    def tile_row(one: Arrays, right: Arrays) -> jax.Array:
        return function(*(x[..., None] for x in one), *right)

    if on_cpu():
        return lax.map(lambda one: tile_row(one, right), left)
    return jax.vmap(tile_row, in_axes=(0, None))(left, right)
