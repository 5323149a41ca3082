"""Classical numbers, each with an interval, or with what a calibrated model would show."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from calibjax._data import Between, Data, Distribution
from calibjax.distributions import Empirical, Quantiles, SurvivalCurve
from calibjax.evaluation._expected_events import events_of
from calibjax.evaluation._metric_intervals import (
    Measure,
    log_scores,
    mean_measure,
    share_measure,
    unknown_rows,
)
from calibjax.evaluation._redrawn_statistics import label_statistics, smooth_ece_of_labels
from calibjax.evaluation._wording import named_rows
from calibjax.intervals import Interval, Sampling, mean_interval, wilson_interval
from calibjax.resampling import host_pvalue
from calibjax.scores import crps, pit, pit_interval

# The central interval whose coverage is counted.
COVERAGE = 0.9
# The first words of calibration errors that, with more than two classes, see the top label alone.
TOP_LABEL = "top-label "
# Rounding in an ECE: data sets without any event are the same data sets, and must tie.
_ROUNDING = 1e-9
# The mean of U = F(y), or of what is known of it.
MEAN_PIT = "mean place of targets"
# How many came, and how many should have.
EVENTS = "events"
# The largest number of levels of quantiles that are shown.
_MOST_LEVELS = 9


def measures(
    key: jax.Array,
    data: Data,
    confidence_level: float,
    n_resamples: int,
    row_names: np.ndarray | None = None,
) -> dict[str, Measure]:
    """The classical numbers that exist for predictions of this family, by their names.

    Notes call a row by its name, or by its number from 0.
    """
    predictions = data.predictions
    row_names = np.arange(data.n_kept()) if row_names is None else row_names
    if isinstance(data.targets, Between):
        return _interval_measures(data, confidence_level, row_names)
    if predictions.has_labels:
        return _label_measures(key, data, confidence_level, n_resamples)
    if isinstance(predictions, Quantiles):
        return _quantile_measures(data, confidence_level, row_names)
    found = _log_score(data, confidence_level, row_names)
    if predictions.target_shape == "n":
        found |= _number_measures(key, data, confidence_level, row_names)
    return found


def _log_score(data: Data, confidence_level: float, row_names: np.ndarray) -> dict[str, Measure]:
    scores = log_scores(data)
    if scores is None:
        return {}
    rows = np.flatnonzero(np.isposinf(scores))
    if isinstance(data.predictions, SurvivalCurve) and len(rows):
        one = len(rows) == 1
        return {
            "log score": Measure(
                math.inf,
                note=f"{'an event' if one else f'{len(rows)} events'} where "
                f"{'its curve is' if one else 'curves are'} flat: {named_rows(row_names[rows])}",
            )
        }
    # No probability is above 1; a density may be.
    least = 0.0 if data.predictions.target_kind == "integer" else -math.inf
    sampling = Sampling.of_data(data)
    found = mean_measure(scores, confidence_level, sampling, least, row_names=row_names)
    return {"log score": found}


def _interval_measures(
    data: Data, confidence_level: float, row_names: np.ndarray
) -> dict[str, Measure]:
    """What does not need to know the targets; what readers of survival times know belongs here.

    If U = F(y) is uniform, so it is in the interval that is known, and the middle of this interval
    has the mean 1/2, whatever hides the target.
    """
    low, high = (np.asarray(x, np.float64)[: data.n_kept()] for x in pit_interval(data))
    middle = mean_measure(
        (low + high) / 2,
        confidence_level,
        Sampling.of_data(data),
        least=0.0,
        if_calibrated=0.5,
        most=1.0,
        row_names=row_names,
    )
    known = _log_score(data, confidence_level, row_names) | {MEAN_PIT: middle}
    events = events_of(data, confidence_level)
    return known if events is None else known | {EVENTS: events}


def _label_measures(
    key: jax.Array, data: Data, confidence_level: float, n_resamples: int
) -> dict[str, Measure]:
    scores, values = label_statistics(key, data, n_resamples)
    tail, sampling = (1 - confidence_level) / 2, Sampling.of_data(data)

    def measure(name: str, interval: Interval | None, pvalue: float | None = None) -> Measure:
        low, high = np.quantile(values[name][:-1], [tail, 1 - tail], method="nearest")
        if sampling.is_dependent:  # The mean of draws does not need independent rows.
            low = high = values[name][:-1].mean()
        return Measure(float(values[name][-1]), interval, (float(low), float(high)), pvalue)

    def mean(name: str, most: float) -> Measure:
        return measure(name, mean_interval(scores[name], confidence_level, (0.0, most), sampling))

    n_classes = data.predictions.n_labels
    assert n_classes is not None
    is_event = n_classes == 2
    of_event = "" if is_event else TOP_LABEL
    ece = measure("ECE", None, host_pvalue(values["ECE"], _ROUNDING))
    if sampling.is_dependent:
        ece = Measure(ece.value, note="its p would assume independent rows")
    accuracy = wilson_interval(scores["accuracy"], confidence_level, sampling)
    return {
        "accuracy at 1/2" if is_event else "accuracy": measure("accuracy", accuracy),
        "log score": mean("log score", math.inf),
        "Brier score": mean("Brier score", 1.0 if is_event else 2.0),
        **({"RPS": mean("RPS", n_classes - 1.0)} if data.predictions.is_ordered else {}),
        f"{of_event}ECE": ece,
        f"{of_event}smooth ECE": Measure(float(smooth_ece_of_labels(data))),
    }


def _number_measures(
    key: jax.Array, data: Data, confidence_level: float, row_names: np.ndarray
) -> dict[str, Measure]:
    n, sampling = data.n_kept(), Sampling.of_data(data)
    scores = np.asarray(crps(data))[:n]
    found = {"CRPS": mean_measure(scores, confidence_level, sampling, 0.0, row_names=row_names)}
    seen = data.predictions.restricted(data.targets)
    means, deviations = (np.asarray(x, np.float64)[:n] for x in moments(data.predictions))
    squares = np.square(np.asarray(seen, np.float64)[:n] - means)
    ratios = _ratios_to_variance(data.predictions, squares, np.square(deviations), sampling)
    if np.isfinite(ratios).all() and np.isfinite(deviations).all():
        found["squared error / variance"] = mean_measure(
            ratios, confidence_level, sampling, 0.0, 1.0, row_names=row_names
        )
    pits = np.asarray(pit(key, data))[:n]
    covered = np.abs(2 * pits - 1) <= COVERAGE
    unknown = unknown_rows(pits, row_names)
    found[_coverage_name(COVERAGE)] = unknown or share_measure(
        covered, COVERAGE, confidence_level, sampling
    )
    return found


def _ratios_to_variance(
    predictions: Distribution, squares: np.ndarray, variances: np.ndarray, sampling: Sampling
) -> np.ndarray:
    """Numbers of rows whose mean is 1 on average if the squared errors are as predicted.

    The variance v of S draws from a distribution with the variance s^2 is s^2 (1 - 1/S) on average,
    and the squared error of their mean s^2 (1 + 1/S).  The mean of their ratios is larger than that
    of the distributions, as a small v is in the denominator; so the mean of the squares is divided
    by that of v (S + 1) / (S - 1), and the numbers of rows are those of its linear expansion.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if not isinstance(predictions, Empirical) or predictions.weights is not None:
            return squares / variances
        n_draws = predictions.samples.shape[1]
        expected = variances * np.divide(n_draws + 1, n_draws - 1)
        shares = sampling.shares()
        mean = shares @ expected
        ratio = shares @ squares / mean
        return ratio + (squares - ratio * expected) / mean


@jax.jit
def moments(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Means and standard deviations."""
    return predictions.mean(), predictions.standard_deviation()


def _coverage_name(coverage: float) -> str:
    return f"coverage of {100 * coverage:.3g} % intervals"


def _quantile_measures(
    data: Data, confidence_level: float, row_names: np.ndarray
) -> dict[str, Measure]:
    """What was predicted and no more: at each level the share of targets that lie below.

    Where targets are equal to quantiles, the share below may be smaller than the level, and the
    share up to the quantile may be larger.
    """
    n, sampling = data.n_kept(), Sampling.of_data(data)
    scores = np.asarray(crps(data))[:n]
    found = {"CRPS": mean_measure(scores, confidence_level, sampling, 0.0, row_names=row_names)}
    levels, below, up_to = shares_of_levels(*data.samples)
    below, up_to = below[:n], up_to[:n]

    def share(hits: np.ndarray, level: float, least: bool = True, most: bool = True) -> Measure:
        measure = share_measure(hits, level, confidence_level, sampling)
        low, high = measure.if_calibrated or (0.0, 1.0)
        return dataclasses.replace(
            measure, if_calibrated=(low if least else 0.0, high if most else 1.0)
        )

    if np.isclose(levels[0] + levels[-1], 1):
        ends_are_hit = np.any(below[:, [0, -1]] != up_to[:, [0, -1]])
        covered, coverage = up_to[:, -1] & ~below[:, 0], levels[-1] - levels[0]
        found[_coverage_name(coverage)] = share(covered, coverage, most=not ends_are_hit)
    n_shown = min(len(levels), _MOST_LEVELS)
    for k in np.linspace(0, len(levels) - 1, n_shown).round().astype(int):
        level, is_hit = levels[k], np.any(below[:, k] != up_to[:, k])
        name = f"level {level:.4g}"
        found[f"share below {name}"] = share(below[:, k], level, least=not is_hit)
        if is_hit:
            found[f"share up to {name}"] = share(up_to[:, k], level, most=False)
    return found


def shares_of_levels(predictions: Quantiles, targets: Any) -> tuple[np.ndarray, ...]:
    """The K levels, and whether each target is below the quantile of each, or at most that.

    The shapes are ``[K]``, ``[n, K]`` and ``[n, K]``.
    """
    levels, values = np.asarray(predictions.levels), np.asarray(predictions.values)
    targets = np.asarray(targets)[:, None]
    return levels, targets < values, targets <= values
