"""How many labels that are drawn from the predictions lie in cells."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._data.distribution import Binary, Distribution
from calibjax._numbers.arithmetic import x_where
from calibjax._pairwise.tiles import in_chunks
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_batches, row_numbers
from calibjax.nulls.event_sums import EventSums
from calibjax.nulls.sampler import DataSets, SampledRows

# How many drawn labels are in memory at a time: they fit into a cache.
_LABELS = 2**18


def redrawn_label_counts(
    key: jax.Array,
    predictions: Distribution,
    weights: jax.Array,
    cells: jax.Array,
    n_cells: int,
    n_resamples: int,
) -> jax.Array:
    """How many rows draw a label of each cell, in each draw, ``[n_resamples, n_cells]``.

    A row counts in one cell only, the cell of the label that it draws.  So a draw of n rows takes
    O(n) time, however many classes there are.  Draw r depends only on (key, rows, r), and memory
    does not grow with n times n_resamples.

    Args:
        key: a key of `jax.random`.
        predictions, weights: n predictions of m classes, and 0 for rows that do not count.
        cells: the cell of each label of each row, ``[n, m]``; `n_cells` does not count.
        n_cells: the number of cells.
        n_resamples: the number of draws.
    """
    numbers = row_numbers(weights)
    if predictions.n_labels == 2:
        # From sums of ones over the cells of rows.
        ones = (weights != 0).astype(jnp.float32)

        def drawn(label: int) -> jax.Array:
            rows = SampledRows(predictions, jnp.full_like(numbers, label), None, numbers, numbers)
            of_rows = jnp.ones_like(ones)[:, None], ones, jnp.zeros_like(ones), cells[:, label]
            sets = DataSets(key, rows, None, False)
            found = EventSums.of(*of_rows, n_cells).redrawn(sets, n_resamples)
            return found[..., 0].astype(jnp.int32)

        events = drawn(1)
        if isinstance(predictions, Binary):  # The label 0 has no cell.
            return events
        sizes = jnp.zeros(n_cells, jnp.int32)
        sizes = sizes.at[cells[:, 0]].add(ones.astype(jnp.int32), mode="drop")
        return events + sizes[None] - drawn(0)
    batches = jnp.arange(-(-n_resamples // DRAWS_PER_BATCH), dtype=jnp.int32)
    n_draws = batches.size * DRAWS_PER_BATCH
    draws = jnp.arange(n_draws, dtype=jnp.int32)

    def add(
        counts: jax.Array, chunk: tuple[tuple[Distribution, jax.Array, jax.Array], jax.Array]
    ) -> tuple[jax.Array, None]:
        (predictions, numbers, cells), weights = chunk
        labels = draw_batches(key, predictions, numbers, batches)
        drawn = jnp.take_along_axis(cells, labels, axis=1)
        drawn = x_where((weights == 0)[:, None], n_cells, drawn)
        here = counts.at[draws[None], drawn]
        return here.add(1, mode="drop", wrap_negative_indices=False), None

    chunks = in_chunks((predictions, numbers, cells), weights, _LABELS // n_draws)
    start = jnp.zeros((n_draws, n_cells), jnp.int32)
    return lax.scan(add, start, chunks)[0][:n_resamples]
