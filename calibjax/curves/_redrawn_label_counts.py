"""How often labels fall into cells, for targets redrawn from predictions of classes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax.intervals._model_draws import DRAWS_PER_GROUP, draw_targets

# The number of labels whose cells are looked up at a time, for all draws of a group.
_ROWS = 2**13


def redrawn_label_counts(
    key: jax.Array,
    predictions: Any,
    rows: jax.Array,
    cells: jax.Array,
    n_cells: int,
    n_resamples: int,
) -> jax.Array:
    """How many rows draw a label of each cell, in each draw, ``[n_resamples, n_cells]``.

    A row counts in one cell only, the cell of the label that it draws.  So a draw of n rows takes
    O(n) time, however many classes there are.  Draw r depends only on (key, rows, r).

    Args:
        key: a key of `jax.random`.
        predictions: n predictions of m classes.
        rows: the number of each row in all data, ``[n]``.
        cells: the cell of each label of each row, ``[n, m]``; `n_cells` does not count.
        n_cells: the number of cells.
        n_resamples: the number of draws.
    """
    n = rows.shape[0]
    size = min(n, _ROWS)
    n_chunks = -(-n // size)

    def in_chunks(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, ((0, n_chunks * size - n), *[(0, 0)] * (x.ndim - 1)), mode="edge")
        return padded.reshape(n_chunks, size, *x.shape[1:])

    counted = (jnp.arange(n_chunks * size) < n).reshape(n_chunks, size)
    chunks = *jax.tree.map(in_chunks, (predictions, rows, cells)), counted
    draws = jnp.arange(DRAWS_PER_GROUP, dtype=jnp.int32)
    n_groups = -(-n_resamples // DRAWS_PER_GROUP)

    def add(counts: jax.Array, chunk: tuple[Any, ...]) -> tuple[jax.Array, None]:
        predictions, rows, cells, counted = chunk

        # Within a chunk, because all groups share the sorted probabilities.
        def of_group(group: jax.Array) -> jax.Array:
            labels = draw_targets(key, predictions, rows, group)
            drawn = jnp.take_along_axis(cells, labels, axis=1)
            return jnp.where(counted[:, None], drawn, n_cells)

        def add_group(group, counts):
            added = counts[group].at[draws[None], of_group(group)].add(1, mode="drop")
            return counts.at[group].set(added)

        return lax.fori_loop(0, n_groups, add_group, counts), None

    start = jnp.zeros((n_groups, DRAWS_PER_GROUP, n_cells), jnp.int32)
    counts = lax.scan(add, start, chunks)[0]
    return counts.reshape(-1, n_cells)[:n_resamples]
