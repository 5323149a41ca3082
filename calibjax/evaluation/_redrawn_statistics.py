"""Statistics of the targets and of data sets drawn from the predictions, in NumPy.

A program that computes all of them takes longer to compile than they take to compute.  What is
drawn, and p-values, are those of `resampling`.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._data import Data, clean
from calibjax.estimators import (
    UniformBinning,
    one_vs_rest,
    smooth_ece,
    top_label,
)
from calibjax.intervals import Sampling
from calibjax.resampling import DRAWS_PER_GROUP, draw_pits, draw_targets

# The bins of an ECE.
_BINNING = UniformBinning(10)


def under_model_on_host(
    statistic: Callable[[np.ndarray], Any],
    draw: Callable[[np.int32], jax.Array],
    observed: np.ndarray,
    n_resamples: int,
) -> Any:
    """``statistic(targets)`` of R draws from the model, and last of the observed targets.

    Args:
        statistic: a function of the targets of D data sets ``[D, n]``, a tree of arrays ``[D, …]``.
        draw: the targets of a group of data sets, ``[DRAWS_PER_GROUP, ≥ n]``, by its number.
        observed: the targets, ``[n]``.
        n_resamples: the number of draws, R.

    Returns:
        The tree with arrays ``[R + 1, …]``.
    """
    groups = range(-(-n_resamples // DRAWS_PER_GROUP))
    drawn = (np.asarray(draw(np.int32(k)))[:, : observed.size] for k in groups)
    *of_draws, last = map(statistic, itertools.chain(drawn, [observed[None]]))
    return jax.tree.map(
        lambda value, *draws: np.concatenate([np.concatenate(draws)[:n_resamples], value]),
        last,
        *of_draws,
    )


def label_statistics(
    key: jax.Array, data: Data, n_resamples: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Scores of the n kept rows ``[n]``, and their means for R draws and the targets ``[R + 1]``.

    Means have the weights of the rows.  With them comes the ECE of `judged`.  Draw r of a row
    depends only on (key, row, r).
    """
    shares, n = Sampling.of_data(data).shares(), data.n_kept()
    observed, held = np.asarray(data.targets)[:n], np.asarray(label_probabilities(data))[:n]
    probabilities = held.astype(np.float64)
    n_classes, most_likely = probabilities.shape[1], probabilities.argmax(axis=1)
    squared_norm = np.square(probabilities).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        tables = {
            "log score": -np.log(probabilities),
            # Sum over classes of (p_c - 1{y = c})^2, of which (p - y)^2 of an event is one half.
            "Brier score": (squared_norm - 2 * probabilities + 1) * (0.5 if n_classes == 2 else 1),
        }
    if data.predictions.is_ordered:
        tables["RPS"] = _ranked_scores(probabilities)
    first_of_row = n_classes * np.arange(n)
    event = np.ones(n, int) if n_classes == 2 else most_likely
    confidences = np.minimum(held[np.arange(n), event], 1)
    ends = _BINNING.ends(np.arange(1, _BINNING.n_bins, dtype=confidences.dtype))
    bins = np.searchsorted(ends, confidences)
    expected = np.bincount(bins, shares * confidences, _BINNING.n_bins)
    is_in_bin = shares[:, None] * (bins[:, None] == np.arange(expected.size))

    def row_scores(targets: np.ndarray) -> dict[str, np.ndarray]:
        cells = first_of_row + targets
        return {"accuracy": (targets == most_likely).astype(float)} | {
            name: table.ravel().take(cells) for name, table in tables.items()
        }

    def statistics(targets: np.ndarray) -> dict[str, np.ndarray]:
        events = (targets == event).astype(float) @ is_in_bin
        errors = np.abs(events - expected).sum(axis=1)
        return {name: x @ shares for name, x in row_scores(targets).items()} | {"ECE": errors}

    draw = functools.partial(drawn_labels, key, data)
    return row_scores(observed), under_model_on_host(statistics, draw, observed, n_resamples)


def _ranked_scores(probabilities: np.ndarray) -> np.ndarray:
    """The ranked probability score of each row, if its label is c, ``[n, m]``.

    It is the sum of P(Y <= k)^2 over the k below c, and of P(Y > k)^2 over the others.
    """
    up_to = np.square(np.cumsum(probabilities, axis=1)[:, :-1])
    above = np.square(np.cumsum(probabilities[:, :0:-1], axis=1)[:, ::-1])
    none = np.zeros((len(probabilities), 1))
    of_lower = np.concatenate([none, np.cumsum(up_to, axis=1)], axis=1)
    return of_lower + np.concatenate([np.cumsum(above[:, ::-1], axis=1)[:, ::-1], none], axis=1)


@functools.partial(quick_jit, simple_loops=True)
def label_probabilities(data: Data) -> jax.Array:
    """The probabilities of all labels ``[n, m]``."""
    return clean(data).predictions.label_probabilities()


@functools.partial(quick_jit, simple_loops=True)
def drawn_labels(key: jax.Array, data: Data, group: jax.Array) -> jax.Array:
    """A group of draws of the label of each row, ``[DRAWS_PER_GROUP, n]``."""
    rows = jnp.arange(data.n, dtype=jnp.int32)
    return draw_targets(key, clean(data).predictions, rows, group).T


@functools.partial(quick_jit, simple_loops=True)
def drawn_pits(key: jax.Array, rows: jax.Array, group: jax.Array) -> jax.Array:
    """A group of draws of the PIT of each row, ``[DRAWS_PER_GROUP, n]``."""
    return draw_pits(key, rows, group[None], jnp.float32)[0].T


@functools.partial(quick_jit, simple_loops=True)
def smooth_ece_of_labels(data: Data) -> jax.Array:
    """`smooth_ece` of `judged`."""
    return smooth_ece(judged(data).replace(weights=data.weights))


def judged(data: Data) -> Data:
    """The probabilities that ECE and reliability diagrams look at, and whether the event came.

    Of two labels it is the probability of 1, and of more the probability of the most likely one.
    """
    if data.predictions.n_labels == 2:
        return one_vs_rest(data, None, 1)
    return top_label(data)
