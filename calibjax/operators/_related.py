"""Sums over H of the pairs of rows that may depend on each other."""

import jax
import jax.numpy as jnp

from calibjax._numbers import dot
from calibjax._pairwise import Trees, cut, ring
from calibjax._rows import Data
from calibjax._sharding import all_sum
from calibjax._struct import PyTree
from calibjax.operators._tiled import TiledH

# Rounded times that are one horizon apart may seem to be less.
_LESS_THAN_ONE = 0.999


def related_sums(h: TiledH, data: Data) -> tuple[jax.Array, jax.Array]:
    """sum w_i w_j h_ij and sum w_i w_j over the pairs i != j of rows that may depend on each other.

    They are rows of one cluster, or whose times are less than 1 apart.  `data` are the rows of H in
    their order, without those that fill the last tile.  One pass over H.
    """
    units = data.clusters if data.times is None else data.times.astype(data.weights.dtype)
    units = jnp.pad(units, (0, h.weights.shape[0] - units.shape[0]), mode="edge")

    def related(a: jax.Array, b: jax.Array) -> jax.Array:
        if data.times is None:
            return a[:, None] == b[None, :]
        return jnp.abs(a[:, None] - b[None, :]) < _LESS_THAN_ONE

    def visit(
        left: PyTree, right: PyTree, same: jax.Array, factor: jax.Array
    ) -> tuple[jax.Array, Trees]:
        (left, left_units), (right, right_units) = left, right
        values = h.off_diagonal(left, right, same)
        is_pair = ~(jnp.eye(h.tile_rows, dtype=bool) & same) & related(left_units, right_units)

        def total(values: jax.Array) -> jax.Array:
            return dot(left[1], dot(jnp.where(is_pair, values, 0.0), right[1]))

        sums = jnp.stack([total(values), total(jnp.ones_like(values))])
        return 2 * factor * sums, ([], [], [])

    tiles = h.tiles(), cut(units, h.tile_rows)
    sums, _, _ = ring(visit, tiles, jnp.zeros(2, h.weights.dtype), [], [], h.axis)
    sums = all_sum(sums, h.axis)
    return sums[0], sums[1]
