"""Which way a whole model is wrong, of predictions of any family."""

from typing import Any

import jax
import numpy as np

from calibjax._data import Between, Data, Distribution, clean
from calibjax.distributions import Quantiles
from calibjax.evaluation._direction import Direction, clear_directions
from calibjax.evaluation._direction_of_labels import directions_of_labels, probabilities_of_labels
from calibjax.evaluation._direction_of_numbers import directions_of_numbers, directions_of_vectors
from calibjax.evaluation._metrics import moments
from calibjax.intervals import Sampling
from calibjax.scores import pit


def directions_of(
    key: jax.Array,
    data: Data,
    temperature: float | None,
    impossible: np.ndarray,
    level: float,
    classes: list[Any] | None,
) -> tuple[Direction, ...]:
    """The clear directions of a model that is not calibrated, the main one first.

    In NumPy: compiling it would take longer than it takes.

    Args:
        key: the key of the measures, whose randomised PITs it sees too.
        data: n predictions and targets.
        temperature: the one that suits the rows best, or None.
        impossible: numbers of rows that do not count, as their targets had probability 0.
        level: the probability that a calibrated model has any clear direction.
        classes: the names of the classes, or None.
    """
    if isinstance(data.targets, Between):
        return ()
    n = data.n_kept()
    counts = np.ones(n, bool)
    counts[impossible] = False
    predictions = data.predictions
    if predictions.has_labels:
        probabilities = probabilities_of_labels(predictions)[:n][counts]
        targets = np.asarray(data.targets)[:n][counts]
        sampling = Sampling.of_data(data).of_rows(counts)
        found = directions_of_labels(probabilities, targets, sampling, temperature, classes)
    elif predictions.target_shape == "n":
        found = _of_numbers(key, data, counts)
    else:
        found = _of_vectors(data, counts)
    return clear_directions(found, level)


def _of_numbers(key: jax.Array, data: Data, counts: np.ndarray) -> list[Direction]:
    n = counts.size
    pits, locations, spreads = (
        np.asarray(x, np.float64)[:n] for x in (pit(key, data), *_locations_and_spreads(data))
    )
    counts = counts & np.isfinite(pits) & np.isfinite(locations) & np.isfinite(spreads)
    means = levels = None
    if isinstance(data.predictions, Quantiles):
        levels = np.asarray(data.predictions.levels)
    else:
        seen = data.predictions.restricted(data.targets)
        both = np.asarray(moments(data.predictions)[0])[:n][counts], np.asarray(seen)[:n][counts]
        if np.isfinite(both[0]).all():
            means = both
    sampling = Sampling.of_data(data).of_rows(counts)
    return directions_of_numbers(
        pits[counts], locations[counts], spreads[counts], sampling, means, levels
    )


def _of_vectors(data: Data, counts: np.ndarray) -> list[Direction]:
    if data.predictions.score_only:
        return []
    n = counts.size
    means, deviations, targets = (
        np.asarray(x, np.float64)[:n][counts] for x in (*moments(data.predictions), data.targets)
    )
    if not (np.isfinite(means).all() and np.isfinite(deviations).all() and deviations.all()):
        return []
    return directions_of_vectors(means, deviations, targets, Sampling.of_data(data).of_rows(counts))


@jax.jit
def _locations_and_spreads(data: Data) -> tuple[jax.Array, jax.Array]:
    predictions: Distribution = clean(data).predictions
    return predictions.location(), predictions.spread()
