"""How often events happen in cells of rows, for targets redrawn from binary predictions."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax.distributions import Bernoulli
from calibjax.intervals._model_draws import DRAWS_PER_GROUP, draw_targets

# The number of rows whose targets are drawn at a time.
_ROWS = 2**14


def redrawn_counts(
    key: jax.Array,
    probs: jax.Array,
    rows: jax.Array,
    cells: jax.Array,
    n_cells: int,
    n_resamples: int,
) -> jax.Array:
    """The number of events in each cell, for each draw of all targets, ``[n_resamples, n_cells]``.

    Draw r depends only on (key, rows, r).  Memory does not grow with n times n_resamples.

    Args:
        key: a key of `jax.random`.
        probs: the probability of an event in each row, ``[n]``.
        rows: the number of each row in all data, ``[n]``.
        cells: the cell of each row, ``[n]``; rows of the cell `n_cells` do not count.
        n_cells: the number of cells.
        n_resamples: the number of draws.
    """
    n = probs.shape[0]
    size = min(n, _ROWS)
    n_chunks = -(-n // size)

    def in_chunks(x: jax.Array, fill: int) -> jax.Array:
        padded = jnp.pad(x, (0, n_chunks * size - n), constant_values=fill)
        return padded.reshape(n_chunks, size)

    chunks = in_chunks(probs, 0), in_chunks(rows, 0), in_chunks(cells, n_cells)

    def of_group(group: jax.Array) -> jax.Array:
        def add(counts: jax.Array, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
            probs, rows, cells = chunk
            events = draw_targets(key, Bernoulli(probs), rows, group).astype(jnp.int32)
            return counts.at[cells].add(events, mode="drop"), None

        start = jnp.zeros((n_cells, DRAWS_PER_GROUP), jnp.int32)
        return lax.scan(add, start, chunks)[0].T

    n_groups = -(-n_resamples // DRAWS_PER_GROUP)
    counts = lax.map(of_group, jnp.arange(n_groups, dtype=jnp.int32))
    return counts.reshape(-1, n_cells)[:n_resamples]
