"""What is made of redrawn targets: a statistic of each data set, or a sum over rows.

Only targets change from one data set to the next: what depends on predictions alone is computed
once for several data sets.

A statistic that divides by a variance of the data set itself is largest where no rare event
occurs, because hardly anything varies there, and too many events are never seen.  Therefore what
standardises a statistic is taken from all data sets, the observed one included, which keeps them
exchangeable.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._pairwise import in_chunks
from calibjax._sharding import Axis, all_sum, as_varying
from calibjax.resampling._draws import DRAWS_PER_GROUP, draw_groups, draw_targets, row_numbers

Rows = TypeVar("Rows")
Sums = TypeVar("Sums")

# The number of data sets that share what is made of the predictions, such as tiles of a kernel:
# the tiles are cheap then, and ten times the values of a tile still fit into caches.
_TOGETHER = 10
# The number of rows whose targets are drawn at a time.
_ROWS = 2**12
# How many numbers of a chunk of rows are in memory at a time.
_NUMBERS = 2**20
# How many drawn labels are in memory at a time: they fit into a cache.
_LABELS = 2**18


def under_model(
    statistic: Callable[[jax.Array], Sums],
    key: jax.Array,
    samples: tuple[Distribution, jax.Array],
    rows: jax.Array,
    n_resamples: int,
    together: int = _TOGETHER,
) -> Sums:
    """``statistic(targets)`` of n_resamples draws from the model, and last of the observed targets.

    The observed targets take their turn among the draws, so that the same program computes all
    values.  Draw r depends only on (key, rows, r).

    Args:
        statistic: a function of targets, which may sum over devices.
        key: a key of `jax.random`.
        samples: the predictions and the observed targets of the rows of this device.
        rows: the numbers of these rows in all data, ``[n]``.
        n_resamples: the number of draws, R.
        together: how many data sets are computed at once, at most.

    Returns:
        The tree that `statistic` returns, with the leading axis ``[R + 1]``.
    """
    predictions, observed = samples
    # A divisor of the size of a group leaves no rest, which would be one more program.
    divisors = [k for k in range(1, DRAWS_PER_GROUP + 1) if DRAWS_PER_GROUP % k == 0]
    together = max(k for k in divisors if k <= max(1, together))

    def values_of_group(group: jax.Array) -> Sums:
        def draw(row: tuple[Distribution, jax.Array]) -> jax.Array:
            prediction, number = jax.tree.map(lambda x: x[None], row)
            return draw_targets(key, prediction, number, group)[0].astype(observed.dtype)

        drawn = lax.map(draw, (predictions, rows), batch_size=_ROWS)
        drawn = jnp.moveaxis(drawn, 1, 0)
        numbers = group * DRAWS_PER_GROUP + jnp.arange(DRAWS_PER_GROUP, dtype=jnp.int32)
        is_observed = (numbers == n_resamples).reshape(-1, *(1,) * observed.ndim)
        targets = jnp.where(is_observed, observed[None], drawn)
        return lax.map(statistic, targets, batch_size=together)

    n_groups = n_resamples // DRAWS_PER_GROUP + 1
    values = lax.map(values_of_group, jnp.arange(n_groups, dtype=jnp.int32))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: n_resamples + 1], values)


def sum_over_rows(
    function: Callable[[tuple[Rows, jax.Array]], Sums],
    rows: Rows,
    weights: jax.Array,
    per_row: int,
    axis: Axis = None,
) -> Sums:
    """The sum over all devices of ``function((rows, weights))`` of chunks of rows.

    The function holds `per_row` numbers of a row, and returns a tree of sums.  Rows of weight 0,
    which fill the last chunk, must add nothing to them.
    """
    shapes = jax.eval_shape(function, jax.tree.map(lambda x: x[:1], (rows, weights)))
    # Sums ``[F, …]`` over fewer rows than F would mostly move their result.
    n_sums = jax.tree.leaves(shapes)[0].shape[0]
    chunks = in_chunks(rows, weights, max(n_sums, _NUMBERS // per_row))

    def step(totals: Sums, chunk: tuple[Rows, jax.Array]) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, totals, function(chunk)), None

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return all_sum(lax.scan(step, as_varying(zeros, rows), chunks)[0], axis)


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
        predictions: n predictions of m classes.
        weights: 0 for rows that do not count, ``[n]``.
        cells: the cell of each label of each row, ``[n, m]``; `n_cells` does not count.
        n_cells: the number of cells.
        n_resamples: the number of draws.
    """
    groups = jnp.arange(-(-n_resamples // DRAWS_PER_GROUP), dtype=jnp.int32)
    n_draws = groups.size * DRAWS_PER_GROUP
    draws = jnp.arange(n_draws, dtype=jnp.int32)

    def add(
        counts: jax.Array, chunk: tuple[tuple[Distribution, jax.Array, jax.Array], jax.Array]
    ) -> tuple[jax.Array, None]:
        (predictions, numbers, cells), weights = chunk
        labels = draw_groups(key, predictions, numbers, groups)
        drawn = jnp.take_along_axis(cells, labels, axis=1)
        drawn = jnp.where((weights == 0)[:, None], n_cells, drawn)
        return counts.at[draws[None], drawn].add(1, mode="drop"), None

    chunks = in_chunks((predictions, row_numbers(weights), cells), weights, _LABELS // n_draws)
    start = jnp.zeros((n_draws, n_cells), jnp.int32)
    return lax.scan(add, start, chunks)[0][:n_resamples]
