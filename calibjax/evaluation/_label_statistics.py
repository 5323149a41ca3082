"""Statistics of labels, for data sets that are drawn from the predictions and for the observed one.

They are in NumPy: a program that computes all of them takes longer to compile than they take to
compute.  What is drawn is that of `nulls`.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np

from calibjax._base.compile import LARGEST_BUCKET, quick_jit
from calibjax._data.data import Data, clean
from calibjax._data.distribution import as_labels
from calibjax.distributions import Categorical
from calibjax.estimators import UniformBinning, one_vs_rest, top_label
from calibjax.intervals import Sampling
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_targets

# How many rows of a batch of data sets are drawn at a time: they fit into a cache.
ROWS_ON_HOST = LARGEST_BUCKET
# The bins of an ECE.
_BINNING = UniformBinning(10)


def judged(data: Data) -> Data:
    """The probabilities that ECE and reliability diagrams look at, and whether the event came.

    Of two labels it is the probability of 1, and of more the probability of the most likely one.
    """
    if data.predictions.n_labels == 2:
        return one_vs_rest(data, label=1)
    return top_label(data)


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


def label_statistics(
    key: jax.Array, data: Data, n_resamples: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores of the n kept rows ``[n]``, and their means for R draws and the targets ``[R + 1]``.

    Means have the weights of the rows.  With them comes the ECE of `judged`.  Draw r of a row
    depends only on (key, row, r).
    """
    shares, n = Sampling.of_data(data).shares(), data.n_kept()
    every = np.asarray(label_probabilities(data))
    observed, held, rows = np.asarray(data.targets)[:n], every[:n], np.arange(n)
    probabilities = held.astype(np.float64)
    n_classes, most_likely = probabilities.shape[1], probabilities.argmax(axis=1)
    squared_norm = np.square(probabilities).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        tables = {
            "accuracy": (most_likely[:, None] == np.arange(n_classes)).astype(float),
            "log loss": -np.log(probabilities),
            # Sum over classes of (p_c - 1{y = c})^2, of which (p - y)^2 of an event is one half.
            "Brier score": (squared_norm - 2 * probabilities + 1) * (0.5 if n_classes == 2 else 1),
        }
    if data.predictions.is_ordered:
        tables["RPS"] = _ranked_scores(probabilities)
    event = np.ones(n, int) if n_classes == 2 else most_likely
    confidences = np.minimum(held[rows, event], 1)
    ends = _BINNING.ends(np.arange(1, _BINNING.n_bins, dtype=confidences.dtype))
    bins = np.searchsorted(ends, confidences)
    expected = np.bincount(bins, shares * confidences, _BINNING.n_bins)
    is_in_bin = shares[:, None] * (bins[:, None] == np.arange(expected.size))
    scores = {name: table[rows, observed] for name, table in tables.items()}
    fixed = np.zeros(len(tables))
    if n_classes == 2:  # All of them are linear in the label.  Draws never have the probability 0.
        possible = [np.where(np.isfinite(x), x, 0.0) for x in tables.values()]
        fixed = np.array([shares @ x[:, 0] for x in possible])
        slopes = np.stack([shares * (x[:, 1] - x[:, 0]) for x in possible], axis=1)
        columns = np.concatenate([slopes, is_in_bin], axis=1)

    def sums(targets: np.ndarray, at: slice) -> np.ndarray:
        if n_classes == 2:
            return targets.astype(float) @ columns[at]
        cells = n_classes * np.arange(targets.shape[1]) + targets
        means = [x[at].ravel().take(cells) @ shares[at] for x in tables.values()]
        events = (targets == event[at]).astype(float) @ is_in_bin[at]
        return np.concatenate([np.stack(means, axis=1), events], axis=1)

    draw = functools.partial(drawn_labels, key, every)
    found = under_model_on_host(sums, draw, observed, n_resamples)
    means = dict(zip(tables, (found[:, : len(tables)] + fixed).T, strict=True))
    for name, x in scores.items():  # An impossible label has an infinite score.
        means[name][-1] = x @ shares
    return scores, means | {"ECE": np.abs(found[:, len(tables) :] - expected).sum(axis=1)}


def _ranked_scores(probabilities: np.ndarray) -> np.ndarray:
    """The ranked probability score of each row, if its label is c, ``[n, m]``.

    It is the sum of P(Y <= k)^2 over the k below c, and of P(Y > k)^2 over the others.
    """
    up_to = np.square(np.cumsum(probabilities, axis=1)[:, :-1])
    above = np.square(np.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1])
    none = np.zeros((len(probabilities), 1))
    of_lower = np.concatenate([none, np.cumsum(up_to, axis=1)], axis=1)
    return of_lower + np.concatenate([np.cumsum(above[:, ::-1], axis=1)[:, ::-1], none], axis=1)


@functools.partial(quick_jit, light=True)
def label_probabilities(data: Data) -> jax.Array:
    """The probabilities of all labels ``[n, m]``."""
    return as_labels(clean(data).predictions).label_probabilities()


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
