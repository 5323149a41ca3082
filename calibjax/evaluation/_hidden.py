"""Targets of which only an interval is known: from people, and in words."""

from typing import Any

import jax
import numpy as np

from calibjax._between import Between
from calibjax._distribution import Distribution
from calibjax._sharding import on_one_device
from calibjax._struct import on_host
from calibjax.distributions import SurvivalCurve, as_predictions, is_foreign
from calibjax.evaluation._arrays import as_numpy
from calibjax.evaluation._events import events_in_words
from calibjax.evaluation._measure import Measure
from calibjax.evaluation._number import number

# The p-value may be too small if a larger share of rows is censored between two times of a curve
# that falls by more than this between them.
_MOST_INSIDE, _LARGE_CELL = 0.05, 0.1


def read_hidden(predictions: Any, targets: Between) -> tuple[Distribution, Between]:
    """Predictions that are a distribution, and both ends as arrays."""
    if is_foreign(predictions):
        predictions = as_predictions(predictions)
    elif isinstance(predictions, Distribution):
        predictions = on_one_device(predictions)
    else:
        raise TypeError(
            "predictions must be a distribution for targets that are Between, such as "
            f"calibjax.Weibull(concentration, scale), got {type(predictions).__name__}."
        )
    if predictions.has_labels:
        raise TypeError(
            "targets must be an array, got Between: it is for predictions of numbers, got "
            f"{type(predictions).__name__} predictions of classes."
        )
    ends = {"low of targets": targets.low, "high of targets": targets.high}
    if targets.censored_at is not None:
        ends["censored_at of targets"] = targets.censored_at
    return predictions, Between(*(on_host(as_numpy(name, x)) for name, x in ends.items()))


def n_hidden(targets: Any) -> int:
    """How many targets are not known exactly."""
    if not isinstance(targets, Between):
        return 0
    return int(np.sum(np.asarray(targets.low) != np.asarray(targets.high)))


def on_numpy(targets: Any) -> Any:
    """Targets as arrays of NumPy."""
    return jax.tree.map(np.asarray, targets)


def remark_on_hidden(predictions: Distribution, targets: Any) -> str | None:
    """What an evaluation lacks because targets are not known exactly; None if all are."""
    if not isinstance(targets, Between):
        return None
    share = _share_in_cells(predictions, targets)
    if targets.censored_at is not None:
        law = "The p-value draws targets and hides them as their rows would be hidden."
    elif share <= _MOST_INSIDE:
        law = "The p-value needs no law of what hides them, and is right for many rows."
    else:
        law = (
            f"The p-value may be too small: {share:.0%} of rows are censored between two times of "
            f"a curve with a probability above {_LARGE_CELL:g} between them, where S is taken to "
            "be linear. Give curves at more times, or censored_at of all rows."
        )
    return (
        f"Hidden targets: of {n_hidden(targets)} of {len(targets.low)} only an interval is known. "
        f"{law} Coverage, CRPS, temperatures, recalibrations and pictures of errors need exact "
        "targets and are left out."
    )


def _share_in_cells(predictions: Distribution, targets: Between) -> float:
    """The share of rows that are censored between two times of a curve that falls much there."""
    if not isinstance(predictions, SurvivalCurve):
        return 0.0
    times, above, at = (np.asarray(x) for x in (predictions.times, predictions.probs, targets.low))
    falls = -np.diff(above, axis=1, prepend=1.0, append=above[:, -1:])
    ends = np.pad(times, ((0, 0), (0, 1)), constant_values=np.inf)
    rows, cell = np.arange(len(times)), np.sum(times < at[:, None], axis=1)
    is_inside = np.isposinf(targets.high) & (at > 0) & (at < ends[rows, cell])
    return float(np.mean(is_inside & (falls[rows, cell] > _LARGE_CELL)))


def shift_in_words(mean_place: Measure, events: Measure | None = None) -> str | None:
    """Whether targets are higher or lower than predicted, by their places; None if not clear.

    What is known of events is said, too.
    """
    interval = mean_place.interval
    if interval is None or interval[0] <= 0.5 <= interval[1]:
        return None
    towards = "higher" if mean_place.value > 0.5 else "lower"
    return (
        f"targets are {towards} than predicted, as far as is known on average at "
        f"{100 * mean_place.value:.3g} % of the predicted probability, where 50 % is right"
        f"{events_in_words(events)}"
    )


def target_in_words(low: float, high: float) -> str:
    """An interval low < y <= high, or the target itself."""
    if low == high:
        return number(low)
    if high == np.inf:
        return f"> {number(low)}"
    return f"≤ {number(high)}" if low == -np.inf else f"{number(low)} … {number(high)}"
