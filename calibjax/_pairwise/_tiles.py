"""Rows cut into tiles."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._loops import on_cpu

#: ``tile(parameters, rows, rows) -> [S, T]``, the values of all pairs of two batches of rows.
Tile = Callable[[Any, Any, Any], jax.Array]


def most_tile_rows() -> int:
    """Rows of a tile: enough to hide the cost of a step, few enough for the caches of a CPU.

    By the default backend: arrays that lie elsewhere are computed right, only more slowly.
    """
    return 512 if on_cpu() else 4096


def tile_sizes(n: int, tile_rows: int | None = None) -> tuple[int, int]:
    """How many tiles n rows make, an odd number, and how many rows are in each."""
    tile_rows = tile_rows or most_tile_rows()
    if n <= tile_rows:
        return 1, n
    # An even ring has opposite tiles, which meet twice.
    n_tiles = -(-n // tile_rows) | 1
    # Rows in whole vectors of the widest registers.
    return n_tiles, -(-n // (16 * n_tiles)) * 16


def pad(rows_and_weights: tuple[Any, jax.Array], n: int) -> tuple[Any, jax.Array]:
    """Repeats the last row up to n rows, with weight 0."""
    rows, weights = rows_and_weights
    extra = n - weights.shape[0]

    def pad_leaf(x, mode):
        return jnp.pad(x, ((0, extra), *((0, 0),) * (x.ndim - 1)), mode=mode)

    return jax.tree.map(lambda x: pad_leaf(x, "edge"), rows), pad_leaf(weights, "constant")


def cut(tree: Any, size: int) -> Any:
    """Cuts the leading axis of all leaves into pieces of one size, ``[n // size, size, …]``."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), tree)
