"""Sums over the rows of a rectangle of pairs."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import compensated_add
from calibjax._pairwise._tile_sums import tile_values
from calibjax._pairwise._tiles import Tile, cut, pad, tile_sizes
from calibjax._sharding import Axis, all_sum, as_varying


def column_sums(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    columns: Any,
    axis: Axis = None,
    tile_rows: int | None = None,
) -> jax.Array:
    """sum_i w_i tile_ij over all rows, those on other devices too, for each of J columns, ``[J]``.

    O(n J) time; O(n + J) memory, also when differentiated: tiles are then made once more.
    """
    n, n_columns = weights.shape[0], jax.tree.leaves(columns)[0].shape[0]
    (n_tiles, size), (n_chunks, width) = tile_sizes(n, tile_rows), tile_sizes(n_columns, tile_rows)
    tiles = cut(pad((rows, weights), n_tiles * size), (n_tiles, size))
    columns, _ = pad((columns, jnp.ones(n_columns)), n_chunks * width)

    @jax.checkpoint
    def part(parameters, rows, weights, columns):
        values = tile_values(tile, parameters, rows, columns)
        return jnp.dot(weights, values, precision=lax.Precision.HIGHEST)

    def of_chunk(columns):
        def step(total, rows):
            return compensated_add(total, part(parameters, *rows, columns)), None

        zeros = as_varying(jnp.zeros(width, weights.dtype), (tiles, columns))
        (high, low), _ = lax.scan(step, (zeros, zeros), tiles)
        return high + low

    sums = lax.map(of_chunk, cut(columns, (n_chunks, width))).reshape(-1)[:n_columns]
    return all_sum(sums, axis)
