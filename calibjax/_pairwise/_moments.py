"""Row sums of the matrix of all pairs and the sum of its squares, in one pass."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._numerics import dot
from calibjax._pairwise._pair_sums import map_blocks
from calibjax._pairwise._ring import ring
from calibjax._pairwise._tile_sums import tile_values
from calibjax._pairwise._tiles import Tile, cut, pad, tile_sizes
from calibjax._sharding import Axis


def row_sums_and_squares(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    axis: Axis = None,
    tile_rows: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """sum_{j != i} w_j tile_ij for the rows of this device ``[n]``, with j on all devices; and this
    device's part of sum_{i != j} w_i w_j tile_ij^2.

    O(n^2) time; a few tiles of memory.
    """
    n, dtype = weights.shape[0], weights.dtype
    n_tiles, size = tile_sizes(n, tile_rows)
    tiles = cut(pad((rows, weights), n_tiles * size), (n_tiles, size))
    diagonal = jnp.eye(size, dtype=bool)

    def visit(left, right, same, factor):
        (left, left_weights), (right, right_weights) = left, right
        values = tile_values(tile, parameters, left, right)
        values = jnp.where(diagonal & same, 0.0, values)
        squares = dot(left_weights, dot(jnp.square(values), right_weights))
        of_left, of_right = dot(values, right_weights), dot(left_weights, values)
        return 2 * factor * squares, ([], factor * of_left, factor * of_right)

    zeros, zero = jnp.zeros((n_tiles, size), dtype), jnp.zeros((), dtype)
    squares, _, sums = ring(visit, tiles, zero, [], zeros, axis)
    return sums.reshape(-1)[:n], squares


def block_sums_and_squares(
    tile: Tile, parameters: Any, rows: Any, weights: jax.Array, block_size: int
) -> tuple[jax.Array, jax.Array]:
    """Within each block of consecutive rows of one device sum_{i != j} w_i w_j tile_ij and
    sum_{i != j} w_i w_j tile_ij^2, ``[n // block_size]`` each."""

    def of_block(rows, weights):
        sums, squares = row_sums_and_squares(tile, parameters, rows, weights)
        return jnp.sum(weights * sums), squares

    return map_blocks(of_block, rows, weights, block_size)
