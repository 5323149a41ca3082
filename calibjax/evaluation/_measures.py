"""The numbers of an evaluation, with intervals, or with what a calibrated model would show."""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.struct import with_fields
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax.distributions import Empirical, Quantiles, SurvivalCurve
from calibjax.estimators import smooth_ece
from calibjax.evaluation._expected_events import expected_events, shares_by_times
from calibjax.evaluation._label_statistics import judged, label_statistics
from calibjax.evaluation._wording import named_rows
from calibjax.expectations import has_log_prob
from calibjax.intervals import Interval, Sampling, mean_interval, wilson_interval
from calibjax.nulls.ranks import host_pvalue
from calibjax.scores import crps, log_score, pit, pit_interval

# The central interval whose coverage is counted.
COVERAGE = 0.9
# The first words of calibration errors that, with more than two classes, see the top label alone.
_TOP_LABEL = "top-label "
# Rounding in an ECE: data sets without any event are the same data sets, and must tie.
_ROUNDING = 1e-9
# The mean of U = F(y), or of what is known of it; how many events came, and should have.
MEAN_PIT, EVENTS = "mean PIT", "events"
# The largest number of levels of quantiles that are shown.
_MOST_LEVELS = 9
# So many draws for one beyond the ends of an interval, where draws take long: more draws move the
# ends by less than their own uncertainty.  They do of so many rows, times classes.
_DRAWS_BEYOND, _LONG = 10, 2**16


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that says how good predictions are.

    Args:
        value: the number.
        interval: a confidence interval for it, from the rows; or None.
        if_calibrated: where it would lie, with the same probability, if targets were drawn from the
            predictions, or twice its mean; or None.
        pvalue: for a measure of calibration, how often such targets show at least as much; or None.
        note: words instead of all but the value, such as which rows have no number; or None.
    """

    value: float
    interval: Interval | None = None
    if_calibrated: Interval | None = None
    pvalue: float | None = None
    note: str | None = None


def few_draws(confidence_level: float, n_resamples: int) -> int:
    """How many draws say where a number of a calibrated model lies, where draws take long."""
    return min(round(_DRAWS_BEYOND / (1 - confidence_level)) - 1, n_resamples)


def draws_for_intervals(data: Data, confidence_level: float, n_resamples: int) -> int:
    """How many draws say where measures and maps of a calibrated model lie: fewer of many rows."""
    is_long = data.n * (data.predictions.n_labels or 1) > _LONG
    return few_draws(confidence_level, n_resamples) if is_long else n_resamples


class _Rows:
    """The n kept rows, which come first, and what is known of means over them.

    Args:
        data: n predictions and targets.
        confidence_level: of the intervals.
        names: what rows are called; None for their numbers, from 0.
    """

    def __init__(self, data: Data, confidence_level: float, names: np.ndarray | None) -> None:
        self.data, self.level, self.n = data, confidence_level, data.n_kept()
        self.sampling = Sampling.of_data(data)
        self.names = np.arange(self.n) if names is None else names

    def kept(self, *columns: Any) -> list[np.ndarray]:
        """The columns in float64 ``[n]``."""
        return [np.asarray(x, np.float64)[: self.n] for x in columns]

    def unknown(self, values: np.ndarray) -> Measure | None:
        """No number, if a row is NaN: what is computed has no digits left there."""
        lost = np.flatnonzero(np.isnan(values))
        note = f"NaN in {named_rows(self.names[lost])}"
        return Measure(math.nan, note=note) if len(lost) else None

    def mean(
        self, values: Any, least: float, most: float = math.inf, expected: float | None = None
    ) -> Measure:
        """The mean of scores that are at least `least` and at most `most`."""
        (values,) = self.kept(values)
        if_calibrated = None if expected is None else (expected, expected)
        return self.unknown(values) or Measure(
            float(self.sampling.shares() @ values),
            mean_interval(values, self.level, (least, most), self.sampling),
            if_calibrated,
        )

    def share(
        self, hits: np.ndarray, probability: float, least: bool = True, most: bool = True
    ) -> Measure:
        """The share of hits, and where it lies if each row hits with a probability.

        Of rows with weights, or that depend on each other, only the mean is known.  Without a
        least or a most, the probability is a bound, and so is that end.
        """
        from scipy.special import bdtr

        value, ends = float(self.sampling.shares() @ hits), (probability, probability)
        if self.sampling.is_plain:
            value, tail, n = float(hits.mean()), (1 - self.level) / 2, len(hits)
            cdf = bdtr(np.arange(n + 1), n, probability)
            low, high = np.searchsorted(cdf, [tail, 1 - tail]) / n
            ends = float(low), float(high)
        ends = ends[0] if least else 0.0, ends[1] if most else 1.0
        return Measure(value, wilson_interval(hits, self.level, self.sampling), ends)


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
    rows, predictions = _Rows(data, confidence_level, row_names), data.predictions
    if isinstance(data.targets, Between):
        return _of_intervals(rows)
    if isinstance(predictions, Labels):
        return _of_labels(key, rows, n_resamples)
    if isinstance(predictions, Quantiles):
        return _of_quantiles(rows)
    return _log_score(rows) | (_of_numbers(key, rows) if predictions.target_shape == "n" else {})


def log_scores(data: Data) -> np.ndarray | None:
    """The log scores of the n kept rows, which come first, ``[n]``; None without a density."""
    if not has_log_prob(data.predictions):
        return None
    return np.asarray(log_score(data))[: data.n_kept()]


def _log_score(rows: _Rows) -> dict[str, Measure]:
    scores = log_scores(rows.data)
    if scores is None:
        return {}
    lost = np.flatnonzero(np.isposinf(scores))
    if isinstance(rows.data.predictions, SurvivalCurve) and len(lost):
        curves = "an event where its curve is" if len(lost) == 1 else "events where curves are"
        count = "" if len(lost) == 1 else f"{len(lost)} "
        note = f"{count}{curves} flat: {named_rows(rows.names[lost])}"
        return {"log score": Measure(math.inf, note=note)}
    # No probability is above 1; a density may be.
    least = 0.0 if rows.data.predictions.target_kind == "integer" else -math.inf
    return {"log score": rows.mean(scores, least)}


def _of_intervals(rows: _Rows) -> dict[str, Measure]:
    """What does not need to know the targets; what readers of survival times know belongs here.

    If U = F(y) is uniform, so it is in the interval that is known, and the middle of this interval
    has the mean 1/2, whatever hides the target.  For events of rows that depend on each other only
    the mean is known.
    """
    low, high = rows.kept(*pit_interval(rows.data))
    found = _log_score(rows) | {MEAN_PIT: rows.mean((low + high) / 2, 0.0, 1.0, 0.5)}
    for time, (predicted, observed, ends) in shares_by_times(rows.data, rows.level).items():
        # There is no interval where nobody or everybody is left.
        interval = ends if ends[0] < ends[1] else None
        found[f"{EVENTS} by {time:.4g}"] = Measure(observed, interval, (predicted, predicted))
    events = expected_events(rows.data)
    if events is None:
        return found
    count, expected = events
    half = 0.0
    if not rows.sampling.is_dependent:
        half = float(jax.scipy.special.ndtri((1 + rows.level) / 2)) * math.sqrt(expected)
    ends = max(expected - half, 0.0), expected + half
    return found | {EVENTS: Measure(count, None, ends)}


def _of_labels(key: jax.Array, rows: _Rows, n_resamples: int) -> dict[str, Measure]:
    scores, values = label_statistics(key, rows.data, n_resamples)
    tail, sampling, predictions = (1 - rows.level) / 2, rows.sampling, rows.data.predictions

    def measure(name: str, interval: Interval | None, pvalue: float | None = None) -> Measure:
        low, high = np.quantile(values[name][:-1], [tail, 1 - tail], method="nearest")
        if sampling.is_dependent:  # The mean of draws does not need independent rows.
            low = high = values[name][:-1].mean()
        return Measure(float(values[name][-1]), interval, (float(low), float(high)), pvalue)

    def mean(name: str, most: float) -> Measure:
        return measure(name, mean_interval(scores[name], rows.level, (0.0, most), sampling))

    n_classes = predictions.n_labels
    assert n_classes is not None
    is_event = n_classes == 2
    of_event = "" if is_event else _TOP_LABEL
    ece = measure("ECE", None, host_pvalue(values["ECE"], _ROUNDING))
    if sampling.is_dependent:
        ece = Measure(ece.value, note="its p would assume independent rows")
    accuracy = wilson_interval(scores["accuracy"], rows.level, sampling)
    return {
        "accuracy at 1/2" if is_event else "accuracy": measure("accuracy", accuracy),
        "log loss": mean("log loss", math.inf),
        "Brier score": mean("Brier score", 1.0 if is_event else 2.0),
        **({"RPS": mean("RPS", n_classes - 1.0)} if predictions.is_ordered else {}),
        f"{of_event}ECE": ece,
        f"{of_event}smooth ECE": Measure(float(_smooth_ece(rows.data))),
    }


def _of_numbers(key: jax.Array, rows: _Rows) -> dict[str, Measure]:
    predictions = rows.data.predictions
    found = {"CRPS": rows.mean(crps(rows.data), 0.0)}
    if isinstance(predictions, Empirical) and predictions.weights is None and not predictions.split:
        fair = rows.data.replace(predictions=with_fields(predictions, split=True))
        (scores,) = rows.kept(crps(fair))
        if np.isfinite(scores).all():  # where each row has two members
            found["fair CRPS"] = rows.mean(scores, -math.inf)
    restricted = predictions.restricted(rows.data.targets)
    targets, means, deviations = rows.kept(restricted, *moments(predictions))
    squares = np.square(targets - means)
    ratios = ratios_to_variance(predictions, squares, np.square(deviations), rows.sampling)
    if np.isfinite(ratios).all() and np.isfinite(deviations).all():
        found["squared error / variance"] = rows.mean(ratios, 0.0, expected=1.0)
    pits = np.asarray(pit(key, rows.data))[: rows.n]
    covered = rows.unknown(pits) or rows.share(np.abs(2 * pits - 1) <= COVERAGE, COVERAGE)
    return found | {_coverage_name(COVERAGE): covered}


def ratios_to_variance(
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
        n_draws: Any = predictions.samples.shape[1]
        if (exists := predictions.exists()) is not None:
            n_draws = np.asarray(exists)[: len(squares)].sum(axis=1)
        expected = variances * np.divide(n_draws + 1, n_draws - 1)
        shares = sampling.shares()
        mean = shares @ expected
        ratio = shares @ squares / mean
        return ratio + (squares - ratio * expected) / mean


@functools.partial(quick_jit, light=True)
def moments(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Means and standard deviations."""
    return predictions.mean(), predictions.standard_deviation()


def _coverage_name(coverage: float) -> str:
    return f"coverage of {100 * coverage:.3g} % intervals"


def _of_quantiles(rows: _Rows) -> dict[str, Measure]:
    """What was predicted and no more: at each level the share of targets that lie below.

    Where targets are equal to quantiles, the share below may be smaller than the level, and the
    share up to the quantile may be larger.
    """
    found = {"CRPS": rows.mean(crps(rows.data), 0.0)}
    levels, below, up_to = shares_of_levels(*rows.data.samples)
    below, up_to = below[: rows.n], up_to[: rows.n]
    is_hit = np.any(below != up_to, axis=0)
    if np.isclose(levels[0] + levels[-1], 1):
        covered, coverage = up_to[:, -1] & ~below[:, 0], levels[-1] - levels[0]
        ends_are_hit = is_hit[0] or is_hit[-1]
        found[_coverage_name(coverage)] = rows.share(covered, coverage, most=not ends_are_hit)
    n_shown = min(len(levels), _MOST_LEVELS)
    for k in np.linspace(0, len(levels) - 1, n_shown).round().astype(int):
        name = f"level {levels[k]:.4g}"
        found[f"share below {name}"] = rows.share(below[:, k], levels[k], least=not is_hit[k])
        if is_hit[k]:
            found[f"share up to {name}"] = rows.share(up_to[:, k], levels[k], most=False)
    return found


def shares_of_levels(predictions: Quantiles, targets: Any) -> tuple[np.ndarray, ...]:
    """The K levels, and whether each target is below the quantile of each, or at most that.

    The shapes are ``[K]``, ``[n, K]`` and ``[n, K]``.
    """
    levels, values = np.asarray(predictions.levels), np.asarray(predictions.values)
    targets = np.asarray(targets)[:, None]
    return levels, targets < values, targets <= values


@functools.partial(quick_jit, light=True)
def _smooth_ece(data: Data) -> jax.Array:
    return smooth_ece(judged(data).replace(weights=data.weights))
