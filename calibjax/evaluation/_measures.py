"""Classical numbers, each with an interval, or with what a calibrated model would show."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._rows import Data, clean
from calibjax._struct import struct
from calibjax.curves import smooth_ece
from calibjax.distributions._quantiles import Quantiles
from calibjax.estimators import ece, one_vs_rest, top_label
from calibjax.evaluation._means import Interval, mean_interval, wilson_interval
from calibjax.evaluation._rows import named_rows
from calibjax.expectations import has_log_prob
from calibjax.resampling import counted_pvalue_with_ties, row_numbers, under_model
from calibjax.scores import crps, log_score, pit

# The central interval whose coverage is counted.
COVERAGE = 0.9
# What the calibration errors of more than two classes look at.
TOP_LABEL = "top-label "
# Of more levels of quantiles so many are shown.
_MOST_LEVELS = 9


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that says how good predictions are.

    Args:
        value: the number.
        interval: a confidence interval for it, from the rows; or None.
        if_calibrated: where it would lie, with the same probability, if targets were drawn from the
            predictions, or twice its mean; or None.
        pvalue: for a measure of calibration, how often such targets show at least as much; or None.
        note: if there is no number, which rows have none; or None.
    """

    value: float
    interval: Interval | None = None
    if_calibrated: Interval | None = None
    pvalue: float | None = None
    note: str | None = None


def measures(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float, n_resamples: int
) -> dict[str, Measure]:
    """The classical numbers that exist for predictions of this family, by their names."""
    if predictions.label_probabilities() is not None:
        return _of_labels(key, predictions, targets, confidence_level, n_resamples)
    if isinstance(predictions, Quantiles):
        return _of_quantiles(predictions, targets, confidence_level)
    if predictions.target_shape == "n":
        return _of_numbers(key, predictions, targets, confidence_level)
    return _likelihood(predictions, targets, confidence_level)


def _of_labels(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float, n_resamples: int
) -> dict[str, Measure]:
    found = _label_statistics(key, Data(predictions, targets), n_resamples)
    tail = (1 - confidence_level) / 2

    def measure(name: str, interval: Interval | None, pvalue: float | None = None) -> Measure:
        values = np.asarray(found.values[name], np.float64)
        low, high = np.quantile(values[:-1], [tail, 1 - tail], method="nearest")
        return Measure(float(values[-1]), interval, (float(low), float(high)), pvalue)

    def mean(name: str, most: float) -> Measure:
        scores = np.asarray(found.of_rows[name], np.float64)
        interval = mean_interval(scores, confidence_level, (0.0, most))
        return dataclasses.replace(measure(name, interval), value=float(scores.mean()))

    hits = np.asarray(found.of_rows["accuracy"])
    smooth = smooth_ece(*judged_probabilities(predictions, targets))
    is_event = predictions.label_probabilities().shape[1] == 2
    of_event = "" if is_event else TOP_LABEL
    return {
        "accuracy": measure("accuracy", wilson_interval(hits, confidence_level)),
        "log score": mean("log score", math.inf),
        "Brier score": mean("Brier score", 1.0 if is_event else 2.0),
        f"{of_event}ECE": measure("ECE", None, float(found.pvalue_of_ece)),
        f"{of_event}smooth ECE": Measure(float(smooth)),
    }


@struct
class _LabelStatistics:
    """Scores of the rows, their means for R draws and last for the observed targets; the ECE."""

    of_rows: dict[str, jax.Array]
    values: dict[str, jax.Array]
    pvalue_of_ece: jax.Array


@functools.partial(jax.jit, static_argnames="n_resamples")
def _label_statistics(key: jax.Array, data: Data, n_resamples: int) -> _LabelStatistics:
    data = clean(data)
    predictions = data.predictions
    probabilities = predictions.label_probabilities()
    n_classes = probabilities.shape[1]
    squared_norm = jnp.sum(jnp.square(probabilities), axis=1)
    most_likely = jnp.argmax(probabilities, axis=1).astype(jnp.int32)

    def of_rows(targets: jax.Array) -> dict[str, jax.Array]:
        of_target = jnp.take_along_axis(probabilities, targets[:, None], axis=1)[:, 0]
        return {
            "accuracy": (targets == most_likely).astype(of_target.dtype),
            "log score": -jnp.log(of_target),
            # Sum over classes of (p_c - 1{y = c})^2, of which (p - y)^2 of an event is one half.
            "Brier score": (squared_norm - 2 * of_target + 1) * (0.5 if n_classes == 2 else 1.0),
        }

    def statistics(targets: jax.Array) -> dict[str, jax.Array]:
        means = {name: jnp.mean(x) for name, x in of_rows(targets).items()}
        return means | {"ECE": ece(*judged_probabilities(predictions, targets))}

    rows = row_numbers(data.weights)
    values = under_model(statistics, key, data.samples, rows, n_resamples)
    return _LabelStatistics(
        of_rows(data.targets.astype(jnp.int32)), values, counted_pvalue_with_ties(values["ECE"])
    )


def judged_probabilities(predictions: Any, targets: jax.Array) -> tuple[Any, jax.Array]:
    """The probabilities that ECE and reliability diagrams look at, and whether the event came.

    Of two labels it is the probability of 1, and of more the probability of the most likely one.
    """
    if predictions.label_probabilities().shape[1] == 2:
        return one_vs_rest(predictions, targets, 1)
    return top_label(predictions, targets)


def _of_numbers(
    key: jax.Array, predictions: Any, targets: jax.Array, confidence_level: float
) -> dict[str, Measure]:
    found = _likelihood(predictions, targets, confidence_level)
    found["CRPS"] = _mean(crps(predictions, targets), confidence_level, 0.0)
    deviations = np.asarray(predictions.standard_deviation(), np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = (np.asarray(targets, np.float64) - np.asarray(predictions.mean())) / deviations
    if np.isfinite(errors).all() and np.isfinite(deviations).all():
        found["squared error / variance"] = _mean(
            np.square(errors), confidence_level, 0.0, if_calibrated=1.0
        )
    place = np.asarray(pit(key, predictions, targets))
    covered = np.abs(2 * place - 1) <= COVERAGE
    unknown = _unknown(place)
    found[_coverage_name(COVERAGE)] = unknown or _share(covered, COVERAGE, confidence_level)
    return found


def _unknown(values: np.ndarray) -> Measure | None:
    """No number, if a row is NaN: what is computed has no digits left there."""
    rows = np.flatnonzero(np.isnan(values))
    return Measure(math.nan, note=f"NaN in {named_rows(rows)}") if len(rows) else None


def _coverage_name(coverage: float) -> str:
    return f"coverage of {100 * coverage:.3g} % intervals"


def _of_quantiles(
    predictions: Quantiles, targets: jax.Array, confidence_level: float
) -> dict[str, Measure]:
    """What was predicted and no more: at each level the share of targets that lie below.

    Where targets are equal to quantiles, the share below may be smaller than the level, and the
    share up to the quantile may be larger.
    """
    found = {"CRPS": _mean(crps(predictions, targets), confidence_level, 0.0)}
    levels, below, up_to = shares_of_levels(predictions, targets)

    def share(hits: np.ndarray, level: float, least: bool = True, most: bool = True) -> Measure:
        measure = _share(hits, level, confidence_level)
        low, high = measure.if_calibrated or (0.0, 1.0)
        return dataclasses.replace(
            measure, if_calibrated=(low if least else 0.0, high if most else 1.0)
        )

    if np.isclose(levels[0] + levels[-1], 1):
        ends_are_hit = np.any(below[:, [0, -1]] != up_to[:, [0, -1]])
        covered, coverage = up_to[:, -1] & ~below[:, 0], levels[-1] - levels[0]
        found[_coverage_name(coverage)] = share(covered, coverage, most=not ends_are_hit)
    n_shown = min(len(levels), _MOST_LEVELS)
    for place in np.linspace(0, len(levels) - 1, n_shown).round().astype(int):
        level, is_hit = levels[place], np.any(below[:, place] != up_to[:, place])
        name = f"level {level:.4g}"
        found[f"share below {name}"] = share(below[:, place], level, least=not is_hit)
        if is_hit:
            found[f"share up to {name}"] = share(up_to[:, place], level, most=False)
    return found


def shares_of_levels(predictions: Quantiles, targets: Any) -> tuple[np.ndarray, ...]:
    """The K levels, and whether each target is below the quantile of each, or at most that.

    The shapes are ``[K]``, ``[n, K]`` and ``[n, K]``.
    """
    levels, values = np.asarray(predictions.levels), np.asarray(predictions.values)
    targets = np.asarray(targets)[:, None]
    return levels, targets < values, targets <= values


def _share(hits: np.ndarray, probability: float, confidence_level: float) -> Measure:
    """The share of hits, and where it lies if each row hits with a probability."""
    from scipy.special import bdtr

    tail, n = (1 - confidence_level) / 2, len(hits)
    binomial_cdf = bdtr(np.arange(n + 1), n, probability)
    low, high = np.searchsorted(binomial_cdf, [tail, 1 - tail]) / n
    interval = wilson_interval(hits, confidence_level)
    return Measure(float(hits.mean()), interval, (float(low), float(high)))


def _likelihood(
    predictions: Distribution, targets: jax.Array, confidence_level: float
) -> dict[str, Measure]:
    if not has_log_prob(predictions):
        return {}
    # No probability is above 1; a density may be.
    least = 0.0 if predictions.target_kind == "integer" else -math.inf
    return {"log score": _mean(log_score(predictions, targets), confidence_level, least)}


def _mean(
    values: Any, confidence_level: float, least: float, if_calibrated: float | None = None
) -> Measure:
    """The mean of scores that are at least `least`."""
    values = np.asarray(values, np.float64)
    unknown = _unknown(values)
    if unknown is not None:
        return unknown
    expected = None if if_calibrated is None else (if_calibrated, if_calibrated)
    interval = mean_interval(values, confidence_level, (least, math.inf))
    return Measure(float(values.mean()), interval, expected)
