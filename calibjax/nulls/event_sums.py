r"""Sums over cells of rows with two labels, of the observed events and of data sets under H0.

With q_i the probability with which label 1 is drawn, whatever has the mean 0 under the model and
depends on a prediction and a label of two is a_i (y_i - q_i).  So all that tests, scores and bands
need of a data set are sums of columns a over cells, and only the draws touch each row:

    sum_{i in c} w_i a_ik (y_i - q_i),    y_i = 1{u_i < q_i}.

Rows are sorted by their cells, and each cell is cut into blocks of a few rows, the last of which is
filled up.  The sums of some blocks are one product of matrices.

With more than two labels only those that are drawn are counted.
"""

from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, as_varying
from calibjax._base.struct import indexed, rows_of, static, struct
from calibjax._data.distribution import Binary, Distribution
from calibjax._numbers.arithmetic import dot, fast_where, place_among
from calibjax._pairwise.tiles import in_chunks
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_batches, row_numbers
from calibjax.nulls.engine import in_passes
from calibjax.nulls.sampler import DataSets, SampledRows

# The blocks of one step, and the largest number of rows in a block.
_BLOCKS, _ROWS_OF_BLOCK = 8, 256
# How many draws of a step are in memory at a time: they fit into a cache.
_DRAWS = 2**18


@struct
class _Rows:
    """The rows of blocks, and what is known of them.

    Args:
        index: which rows these are.
        columns: a, weights included, ``[n, K]``.
        weights: of the rows; 0 of one that fills a block.
        centres: what is taken from labels, ``[n]``.
        cells: those of the blocks.
    """

    index: jax.Array
    columns: jax.Array
    weights: jax.Array
    centres: jax.Array
    cells: jax.Array


#: Columns ``[n, K]`` and numbers ``[n, D]`` of rows, which are multiplied and summed.
_Product = tuple[jax.Array, jax.Array]


@struct
class EventSums:
    """Sums of columns over cells.

    Args:
        steps: the rows of some blocks for each step.
        n_cells: the number of cells.
    """

    steps: _Rows
    n_cells: int = static()

    @classmethod
    def of(
        cls,
        columns: jax.Array,
        weights: jax.Array,
        centres: jax.Array,
        cells: jax.Array,
        n_cells: int,
    ) -> Self:
        """The sums of columns ``[n, K]`` times weights and labels less centres, ``[n]``.

        Rows of the cell `n_cells` do not count.
        """
        index, of_blocks = _blocks(cells, n_cells)
        is_row, index = index < cells.size, jnp.minimum(index, cells.size - 1)
        columns, weights, centres = indexed((columns, weights, centres), index)
        weights = jnp.where(is_row, weights, 0.0)
        columns = weights[..., None] * columns
        return cls(_Rows(index, columns, weights, centres, of_blocks), n_cells)

    @property
    def draws_together(self) -> int:
        """How many batches of draws share a pass over the rows."""
        return max(_DRAWS // (self.steps.weights.shape[1] * DRAWS_PER_BATCH), 1)

    def observed(self, sets: DataSets, axis: Axis = None) -> list[jax.Array]:
        """The sums of the observed labels, their squares, and the expectations of these.

        They have the shape ``[n_cells, 1, K]``; centres must be the probabilities of label 1.
        """

        def of_step(rows: _Rows) -> list[_Product]:
            squares, q, residuals = jnp.square(rows.columns), rows.centres, _observed(sets, rows)
            parts = residuals, jnp.square(residuals), q * (1 - q)
            columns = rows.columns, squares, squares
            return [(a, x[:, None]) for a, x in zip(columns, parts, strict=True)]

        return self._summed(of_step, axis)

    def drawn(self, sets: DataSets, batches: jax.Array, axis: Axis = None) -> list[jax.Array]:
        """The sums of the data sets of some batches, ``[n_cells, D, K]``.

        They are of drawn labels, and of observed ones with multipliers, if there are any.
        """
        shared = sets.shared(batches)

        def of_step(rows: _Rows) -> list[_Product]:
            sampled, columns = indexed(sets.rows, rows.index), rows.columns
            drawn = sampled.drawn(sets.key, batches)
            products = [(columns, drawn.astype(columns.dtype) - rows.centres[:, None])]
            xi = sets.factors(sampled, shared)
            if xi is not None:
                products.append((columns * _observed(sets, rows)[:, None], xi))
            return products

        return self._summed(of_step, axis)

    def redrawn(self, sets: DataSets, n_resamples: int) -> jax.Array:
        """The sums of n_resamples draws from the model, ``[n_resamples, n_cells, K]``."""

        def of_batches(batches: jax.Array) -> tuple[jax.Array, tuple[()]]:
            return jnp.swapaxes(self.drawn(sets, batches)[0], 0, 1), ()

        return in_passes(of_batches, n_resamples, self.draws_together)[0]

    def _summed(self, of_step: Callable[[_Rows], list[_Product]], axis: Axis) -> list[jax.Array]:
        """The sums over cells of the products that `of_step` makes, ``[n_cells, D, K]``."""
        n_rows = self.steps.weights.shape[1]
        is_of_block = (
            jnp.arange(n_rows)[:, None] // (n_rows // _BLOCKS) == jnp.arange(_BLOCKS)[None]
        )

        def in_blocks(columns: jax.Array, numbers: jax.Array) -> jax.Array:
            by_block = jnp.where(is_of_block[:, :, None], columns[:, None], 0.0)
            sums = dot(by_block.reshape(n_rows, -1).T, numbers)
            return sums.reshape(_BLOCKS, columns.shape[1], -1)

        def add(totals: list[jax.Array], rows: _Rows) -> tuple[list[jax.Array], None]:
            pairs = zip(totals, of_step(rows), strict=True)
            added = [total.at[rows.cells].add(in_blocks(*x), mode="drop") for total, x in pairs]
            return added, None

        zeros = [
            jnp.zeros((self.n_cells, columns.shape[1], numbers.shape[1]), columns.dtype)
            for columns, numbers in jax.eval_shape(of_step, indexed(self.steps, 0))
        ]
        totals, _ = lax.scan(add, as_varying(zeros, self.steps), self.steps)
        return [jnp.swapaxes(x, 1, 2) for x in all_sum(totals, axis)]


def _observed(sets: DataSets, rows: _Rows) -> jax.Array:
    """The observed labels less centres, ``[n]``."""
    return sets.rows.targets[rows.index].astype(rows.centres.dtype) - rows.centres


def _blocks(cells: jax.Array, n_cells: int) -> tuple[jax.Array, jax.Array]:
    """The rows of blocks of one cell, ``[steps, rows]``, and the cells of these blocks.

    A row that does not exist has a number of at least n.
    """
    n = cells.size
    # Half a block of each cell is empty, in all a sixteenth of the rows.
    size = min(max(n // (2 * _BLOCKS * n_cells), 1), _ROWS_OF_BLOCK)
    ordered, order = lax.sort((cells, jnp.arange(n, dtype=jnp.int32)), num_keys=1)
    ends = place_among(ordered, jnp.arange(n_cells, dtype=cells.dtype), "right").astype(jnp.int32)
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    counts = lax.div(ends - starts + (size - 1), jnp.full_like(ends, size))
    n_blocks = (n + n_cells * (size - 1)) // size
    n_steps = -(-n_blocks // _BLOCKS)
    block = jnp.arange(n_steps * _BLOCKS, dtype=jnp.int32)
    last = jnp.cumsum(counts, dtype=jnp.int32)
    cell = place_among(last, block, "right").astype(jnp.int32)
    # Blocks behind those of all cells end before their first row.
    of_cells = jnp.stack([starts + (counts - last) * size, ends], axis=1)
    first, end = rows_of(jnp.pad(of_cells, ((0, 1), (0, 0))), cell).T
    row = (first + block * size)[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
    index = jnp.where(row < end[:, None], order[jnp.minimum(row, n - 1)], n)
    return index.reshape(n_steps, -1), cell.reshape(n_steps, -1)


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
        drawn = jnp.take_along_axis(cells, draw_batches(key, predictions, numbers, batches), axis=1)
        drawn = fast_where((weights == 0)[:, None], n_cells, drawn)
        here = counts.at[draws[None], drawn]
        return here.add(1, mode="drop", wrap_negative_indices=False), None

    chunks = in_chunks((predictions, numbers, cells), weights, _LABELS // n_draws)
    return lax.scan(add, jnp.zeros((n_draws, n_cells), jnp.int32), chunks)[0][:n_resamples]
