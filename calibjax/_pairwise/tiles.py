"""Rows cut into tiles, and the weighted sum of one tile of pairs."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree
from calibjax._numbers.arithmetic import dot

T = TypeVar("T")

#: ``tile(parameters, rows, rows) -> [S, T]``, the values of all pairs of two batches of rows.
Tile = Callable[[PyTree, PyTree, PyTree], jax.Array]
#: Rows and their weights.
Weighted = tuple[PyTree, jax.Array]

# The number of rows of the left side that an accelerator takes at a time with one of the right,
# which it reads once for all of them, and the most classes for which it does: with few classes it
# spends most of its time on reading rows, and this takes half of it on an H100.
_SIDE_BY_SIDE = 4
_FEW_CLASSES = 32


def most_tile_rows() -> int:
    """Rows of a tile: enough to hide the cost of a step, few enough for the caches of a CPU."""
    return 512 if on_cpu() else 4096


def tile_sizes(n: int) -> tuple[int, int]:
    """How many tiles n rows make, an odd number, and how many rows are in each."""
    tile_rows = most_tile_rows()
    if n <= tile_rows:
        return 1, n
    # An even ring has opposite tiles, which meet twice.
    n_tiles = -(-n // tile_rows) | 1
    # Rows in whole vectors of the widest registers.
    return n_tiles, -(-n // (16 * n_tiles)) * 16


def pad(rows_and_weights: tuple[T, jax.Array], n: int) -> tuple[T, jax.Array]:
    """Repeats the last row up to n rows, with weight 0."""
    rows, weights = rows_and_weights
    extra = n - weights.shape[0]
    if extra == 0:
        return rows_and_weights

    def with_last(x: jax.Array) -> jax.Array:
        last = lax.slice_in_dim(x, x.shape[0] - 1, x.shape[0])
        return jnp.concatenate([x, jnp.broadcast_to(last, (extra, *x.shape[1:]))])

    zeros = jnp.zeros((extra, *weights.shape[1:]), weights.dtype)
    padded_weights = jnp.concatenate([weights, zeros])
    return jax.tree.map(with_last, rows), padded_weights


def cut(tree: T, size: int) -> T:
    """Cuts the leading axis of all leaves into pieces of one size, ``[n // size, size, …]``."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), tree)


def in_chunks(rows: T, weights: jax.Array, most: int) -> tuple[T, jax.Array]:
    """Rows and weights in chunks of nearly one size, at most of `most`, ``[chunks, size, …]``.

    Rows that are added have weight 0.
    """
    n = weights.shape[0]
    n_chunks = -(-n // max(1, most))
    size = -(-n // n_chunks)
    return cut(pad((rows, weights), n_chunks * size), size)


def weighted_sum(
    tile: Tile, parameters: PyTree, left: Weighted, right: Weighted, same: jax.Array
) -> jax.Array:
    """sum_ij w_i tile_ij w_j, of the pairs i != j where both sides are the same."""
    n = left[1].shape[0]
    right_rows, right_weights = right
    if on_cpu() or n % _SIDE_BY_SIDE or not _are_few_classes(left[0]):
        values = tile(parameters, left[0], right_rows)
        values = jnp.where(jnp.eye(n, dtype=bool) & same, 0.0, values)
        return weighted(values, left[1], right_weights)
    size = n // _SIDE_BY_SIDE
    total = jnp.zeros((size, right_weights.shape[0]), right_weights.dtype)
    for start in range(0, n, size):
        rows, weights = jax.tree.map(lambda x, at=start: x[at : at + size], left)
        values = tile(parameters, rows, right_rows)
        with_itself = jnp.eye(size, n, start, dtype=bool) & same
        values = jnp.where(with_itself, 0.0, values)
        total += values * (weights[:, None] * right_weights[None, :])
    return jnp.sum(total)


def _are_few_classes(rows: PyTree) -> bool:
    """Whether a row is an integer and few other numbers."""
    leaves = jax.tree.leaves(rows)
    numbers = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
    return len(numbers) < len(leaves) and all(
        x.ndim == 2 and x.shape[1] <= _FEW_CLASSES for x in numbers
    )


def weighted(values: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """sum_ij left_i values_ij right_j."""
    if on_cpu():
        return jnp.sum(dot(left, values) * right)
    # A product of matrices would need the values in memory; a sum takes them as they are made.
    return jnp.sum(values * (left[:, None] * right[None, :]))
