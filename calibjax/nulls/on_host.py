"""The engine for few rows and short statistics, in NumPy.

A program that computes them takes longer to compile than they take to compute.  The draws are the
same: draw r of a row depends only on (key, row, r).
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import LARGEST_BUCKET, quick_jit
from calibjax._data.data import Data, clean
from calibjax._data.distribution import as_labels
from calibjax.distributions import Categorical
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_pits, draw_targets

#: The number of rows of a batch of data sets that are drawn at a time: they fit into a cache.
ROWS_ON_HOST = LARGEST_BUCKET


def under_model_on_host(
    statistic: Callable[[np.ndarray, slice], np.ndarray],
    draw: Callable[[np.int32, slice], np.ndarray],
    observed: np.ndarray,
    n_resamples: int,
) -> np.ndarray:
    """Sums over rows of R draws from the model, and last of the observed targets, ``[R + 1, …]``.

    Args:
        statistic: the sums over some rows, of the targets of D data sets ``[D, rows]``.
        draw: the targets of some rows in a batch of data sets, ``[DRAWS_PER_BATCH, rows]``.
        observed: the targets, ``[n]``.
        n_resamples: the number of draws, R.
    """
    starts = range(0, observed.size, ROWS_ON_HOST)
    parts = [slice(k, min(k + ROWS_ON_HOST, observed.size)) for k in starts]
    batches = map(np.int32, range(-(-n_resamples // DRAWS_PER_BATCH)))
    drawn = [sum(statistic(draw(batch, rows), rows) for rows in parts) for batch in batches]
    last = sum(statistic(observed[None, rows], rows) for rows in parts)
    return np.concatenate([np.concatenate(drawn)[:n_resamples], last])


@functools.partial(quick_jit, light=True)
def label_probabilities(data: Data) -> tuple[jax.Array, jax.Array | None]:
    """The probabilities of all labels ``[n, m]``, and the `outcome_weights` of clean rows."""
    rows = clean(data)
    return as_labels(rows.predictions).label_probabilities(), rows.outcome_weights


def drawn_labels(
    key: jax.Array, probabilities: np.ndarray, batch: np.int32, rows: slice
) -> np.ndarray:
    """A batch of draws of the labels of some rows, ``[DRAWS_PER_BATCH, rows]``.

    `probabilities` are those of all rows, filled up to a bucket.
    """
    # One program for all parts: the last one begins before its first row.
    size = min(ROWS_ON_HOST, len(probabilities))
    first = min(rows.start, len(probabilities) - size)
    numbers = np.arange(first, first + size, dtype=np.int32)
    drawn = _drawn_labels(key, probabilities[first : first + size], numbers, batch)
    return np.asarray(drawn)[rows.start - first : rows.stop - first].T


@quick_jit
def _drawn_labels(
    key: jax.Array, probabilities: jax.Array, numbers: jax.Array, batch: jax.Array
) -> jax.Array:
    return draw_targets(key, Categorical(probabilities), numbers, batch)


def drawn_pits(key: jax.Array, n: int, batch: np.int32, rows: slice) -> np.ndarray:
    """A batch of draws of the PIT of some of n rows, ``[DRAWS_PER_BATCH, rows]``."""
    return np.asarray(_drawn_pits(key, np.arange(n, dtype=np.int32), batch))[:, rows]


@quick_jit
def _drawn_pits(key: jax.Array, numbers: jax.Array, batch: jax.Array) -> jax.Array:
    return draw_pits(key, numbers, batch[None], jnp.float32)[0].T
