"""Sums over all pairs of rows, with their derivatives.

The rows are cut into K tiles.  Step d = 0, 1, …, (K-1)/2 pairs every tile with the one d places on,
in a ring: with K odd each unordered pair of tiles comes once.  Nothing larger than one tile of
pairs and a few copies of the rows is ever held.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import compensated_add
from calibjax._pairwise._tiles import TILE_ROWS, Tile, cut, pad
from calibjax._struct import merge, split


def pair_sums(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    block_size: int,
    tile_rows: int = TILE_ROWS,
) -> jax.Array:
    """sum_{i != j} w_i w_j tile_ij within each block of consecutive rows, ``[n // block_size]``.

    Rows after the last full block do not count.  Differentiable in all floating leaves of
    `parameters`, `rows` and `weights`, forwards, backwards and again.  O(n block_size) time,
    O(n + tile_rows^2) memory, for the derivative too.
    """
    n_blocks = weights.shape[0] // block_size
    rows, weights = jax.tree.map(lambda x: x[: n_blocks * block_size], (rows, weights))
    block_sum = functools.partial(_block_sum, tile, tile_rows, parameters)
    if n_blocks == 1:
        return block_sum(rows, weights)[None]
    # Small blocks go together, as many as fill one tile.
    together = max(1, min(n_blocks, tile_rows**2 // block_size**2))
    n_chunks = -(-n_blocks // together)
    shape = (n_chunks, together, block_size)
    chunks = cut(pad((rows, weights), n_chunks * together * block_size), shape)
    sums = lax.map(lambda chunk: jax.vmap(block_sum)(*chunk), chunks)
    return sums.reshape(-1)[:n_blocks]


def _block_sum(tile: Tile, tile_rows: int, parameters: Any, rows: Any, weights: jax.Array):
    n_tiles, size = _tiling(weights.shape[0], tile_rows)
    tiles = cut(pad((rows, weights), n_tiles * size), (n_tiles, size))
    parameters, fixed_parameters, parameter_structure = split(parameters)
    tiles, fixed_tiles, tile_structure = split(tiles)

    def weighted_sum(parameters, fixed_parameters, left, fixed_left, right, fixed_right, same):
        """sum_ij w_i tile_ij w_j of one tile; each pair once where both sides are the same."""
        left, left_weights = merge(left, fixed_left, tile_structure)
        right, right_weights = merge(right, fixed_right, tile_structure)
        values = tile(merge(parameters, fixed_parameters, parameter_structure), left, right)
        index = jnp.arange(size)
        values = jnp.where((index[:, None] == index[None, :]) & same, 0.0, values)
        columns = jnp.dot(left_weights, values, precision=lax.Precision.HIGHEST)
        return jnp.where(same, 0.5, 1.0) * jnp.sum(columns * right_weights)

    return 2 * _ring_sum(weighted_sum, parameters, fixed_parameters, tiles, fixed_tiles)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _ring_sum(weighted_sum, parameters, fixed_parameters, tiles, fixed_tiles):
    def visit(left, fixed_left, right, fixed_right, same):
        sides = left, fixed_left, right, fixed_right
        return weighted_sum(parameters, fixed_parameters, *sides, same), ([], [], [])

    return _ring(visit, tiles, fixed_tiles, ([], []))[0]


@_ring_sum.defjvp
def _ring_sum_jvp(weighted_sum, primals, tangents):
    # The sum is a scalar: its whole derivative is one gradient, made along with the value in a
    # single pass.  Going back over all tiles would evaluate each of them once more.
    total, gradient = _ring_gradient(weighted_sum, *primals)
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, (tangents[0], tangents[2]))
    return total, sum(jax.tree.leaves(products), jnp.zeros_like(total))


def _value_and_gradient(weighted_sum, parameters, fixed_parameters, tiles, fixed_tiles):
    def visit(left, fixed_left, right, fixed_right, same):
        def of_floating(parameters, left, right):
            sides = left, fixed_left, right, fixed_right
            return weighted_sum(parameters, fixed_parameters, *sides, same)

        return jax.value_and_grad(of_floating, argnums=(0, 1, 2))(parameters, left, right)

    zeros = jax.tree.map(jnp.zeros_like, (parameters, tiles))
    return _ring(visit, tiles, fixed_tiles, zeros)


# A rule that changes no derivative: it only hides the loops from jax's partial evaluation, which
# would move what does not change in them out of them, one small array at a time.
_ring_gradient = jax.custom_jvp(_value_and_gradient, nondiff_argnums=(0,))


@_ring_gradient.defjvp
def _ring_gradient_jvp(weighted_sum, primals, tangents):
    return jax.jvp(functools.partial(_value_and_gradient, weighted_sum), primals, tangents)


def _ring(visit, tiles, fixed_tiles, gradient):
    """Adds up `visit` over all unordered pairs of tiles, a tile with itself included.

    ``visit(left, fixed_left, right, fixed_right, same)`` returns a value and its gradients in
    the parameters, in left and in right; they are added to `gradient`, which holds those in the
    parameters and in the tiles.
    """
    n_tiles = tiles[0].shape[0]
    zero = jnp.zeros((), tiles[0].dtype)

    def step(carry, offset):
        total, of_parameters, of_tiles = carry
        shifted = jax.tree.map(lambda x: jnp.roll(x, -offset, axis=0), (tiles, fixed_tiles))

        def pair(carry, sides):
            total, of_parameters = carry
            value, (ours, of_left, of_right) = visit(*sides, offset == 0)
            carry = compensated_add(total, value), jax.tree.map(jnp.add, of_parameters, ours)
            return carry, (of_left, of_right)

        (total, of_parameters), (of_left, of_right) = lax.scan(
            pair, (total, of_parameters), (tiles, fixed_tiles, *shifted)
        )
        of_right = jax.tree.map(lambda x: jnp.roll(x, offset, axis=0), of_right)
        of_tiles = jax.tree.map(lambda a, b, c: a + b + c, of_tiles, of_left, of_right)
        return (total, of_parameters, of_tiles), None

    carry, _ = lax.scan(step, ((zero, zero), *gradient), jnp.arange((n_tiles + 1) // 2))
    (high, low), *gradient = carry
    return high + low, tuple(gradient)


def _tiling(n: int, tile_rows: int) -> tuple[int, int]:
    """How many tiles, an odd number, and how many rows in each."""
    if n <= tile_rows:
        return 1, n
    n_tiles = -(-n // tile_rows) | 1
    # Rows in whole vectors of the widest registers.
    return n_tiles, -(-n // (16 * n_tiles)) * 16
