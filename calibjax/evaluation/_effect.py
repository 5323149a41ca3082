"""How large an error is: the SKCE, measures, ranks, and temperatures that correct or equal it."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import with_fields
from calibjax._data.capabilities import is_exchangeable
from calibjax._data.data import Data
from calibjax.discrepancy import normal_form
from calibjax.distributions import Normal, Univariate
from calibjax.evaluation import _wording as wording
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import aggregated_skce_test
from calibjax.intervals import EquivalentTemperature, temperatures
from calibjax.intervals.skce_interval import (
    ConfidenceInterval,
    landmark_interval,
    skce_and_interval,
)
from calibjax.measures.events import RATIO, SLOPE
from calibjax.measures.families import EVENTS, few_draws, measures, rank_measures
from calibjax.measures.measure import OBSERVED, PREDICTED, MeasureResult, Subset
from calibjax.measures.quantiles import WIS, coverages_not_printed
from calibjax.measures.sampling import Interval, Sampling, mean_interval
from calibjax.recalibration import apply_temperature, fit_temperature, is_end_of_range
from calibjax.scores import log_score

# The interval from all pairs of rows takes a second for this many rows; cells serve for more, with
# nearly the same interval of independent rows.
_MAX_ALL_PAIRS = 2**13
# With as many cells it is within 1 % of that from all pairs.
_CELLS = 2**10
# Measures that the table leaves out; the verdict has both means where they differ.
_ONLY_SAVED = {PREDICTED, OBSERVED, "observed events", "expected events", "E50", "E90"}
_ONLY_SAVED |= {"scaled Brier score", "smooth ECE", "accuracy at 1/2"}
# What the table adds to names of measures.
_LABELS = {x: f"  {x}" for x in ("dispersion", "overprediction", "underprediction")}
_LABELS |= {"bias": wording.BIAS_LABEL, "spread": "spread (expected RMSE)"}
_LABELS |= {EVENTS: "events (during follow-up)", WIS: "WIS = 2 × pinball loss"}


class _SKCE(Section[MeasureResult]):
    """The unbiased SKCE with the default kernel, and its confidence interval."""

    def compute(self, case: Case) -> MeasureResult:
        return skce_of(case.random_keys.effect, case.padded, 1 - case.level, N_RESAMPLES)

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        return (("SKCE", self.of(case)),)


SKCE = _SKCE()


class _EquivalentTemperature(Section[EquivalentTemperature | None]):
    """The temperature that shows as large an error; files have it.

    None for a family that has no temperature, or for which it takes minutes, for weighted rows, and
    for targets that are not known exactly.
    """

    is_printed = False

    def compute(self, case: Case) -> EquivalentTemperature | None:
        data, skce = case.padded, SKCE.of(case)
        if isinstance(data.predictions, Univariate) or not _has_temperature(data):
            return None
        assert skce.interval is not None
        interval = ConfidenceInterval(*map(jnp.asarray, skce.interval))
        terms = normal_form(default_kernel(data))
        return temperatures.temperature_of_errors((terms, jnp.asarray(skce.value), interval), data)

    def to_dict(self, case: Case) -> dict[str, Any]:
        found = self.of(case)
        value = found and {"value": found.temperature, "interval": found.confidence_interval}
        return {"equivalent_temperature": value, "sd_ratio": found and found.sd_ratio}


EQUIVALENT_TEMPERATURE = _EquivalentTemperature()


class BestTemperature(NamedTuple):
    """The temperature that `fit_temperature` finds: above 1 the model is over-confident.

    Args:
        value: the temperature.
        interval: a confidence interval for it; None at the ends of the range.
    """

    value: float
    interval: Interval | None


class _BestTemperature(Section[BestTemperature | None]):
    """The temperature that suits the rows best.

    None for weighted rows, for targets that are not known exactly, and for families without one.
    """

    def compute(self, case: Case) -> BestTemperature | None:
        if not _has_temperature(case.padded):
            return None
        best = float(fit_temperature(case.padded))
        return BestTemperature(best, interval_of_temperature(case.padded, best, 1 - case.level))

    def clause(self, case: Case) -> str | None:
        events, confidence = events_of(case), confidence_of(case)
        said = [ratio_in_words(events[RATIO], case.level)] if RATIO in events else []
        expected = "" if SLOPE in events else ", 1 if calibrated"
        said += [] if confidence is None else [confidence[1] + expected]
        return "; ".join(said) or None

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        # Events have a slope: with O/E away from 1 a temperature without intercept misleads.
        best = None if SLOPE in events_of(case) else self.of(case)
        found = best and MeasureResult(*best, (1.0, 1.0))
        return [] if found is None else [(_name_of_temperature(case), found)]

    def to_dict(self, case: Case) -> dict[str, Any]:
        value, interval = self.of(case) or (None, None)
        return {
            "best_temperature": value,
            "best_temperature_interval": interval,
            "best_temperature_is_end_of_range": None if value is None else is_end_of_range(value),
        }


BEST_TEMPERATURE = _BestTemperature()


class _Measures(Section[dict[str, MeasureResult]]):
    """Accuracy, scores and classical calibration errors, by their names."""

    def compute(self, case: Case) -> dict[str, MeasureResult]:
        rows = case.padded, 1 - case.level, case.n_draws, case.row_names
        (found,) = measures(case.random_keys.measures, *rows)
        return found

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        left_out = _ONLY_SAVED.union(coverages_not_printed(self.of(case)))
        return [(_LABELS.get(x, x), y) for x, y in self.of(case).items() if x not in left_out]


MEASURES = _Measures()


class _RankHistogram(Section[str | None]):
    """The shape of the rank histogram: "flat", "U-shaped", "dome-shaped" or "sloped", or two.

    It is flat unless an interval of the bias excludes 0, or one of the rank dispersion excludes 1;
    both hold at once with the confidence 1 - level.  None but for members without weights.
    """

    def compute(self, case: Case) -> str | None:
        p = case.data.predictions
        if not is_exchangeable(p) or p.target_shape != "n" or case.data.is_censored:
            return None
        (rows,) = Subset.of(case.data, 1 - case.level / 2)
        found = rank_measures(case.random_keys.measures, case.padded)
        bias, dispersion = (found[x](rows).interval for x in ("bias", "rank dispersion"))
        if bias is None or dispersion is None:
            return None
        shapes = []
        if not bias[0] <= 0 <= bias[1]:
            shapes.append(f"sloped (biased {'high' if bias[0] > 0 else 'low'})")
        if not dispersion[0] <= 1 <= dispersion[1]:
            is_narrow = dispersion[0] > 1
            shapes.append(
                "U-shaped (under-dispersive)" if is_narrow else "dome-shaped (over-dispersive)"
            )
        return " and ".join(shapes) or "flat"

    def notes(self, case: Case) -> list[str]:
        shape = self.of(case)
        words = "flat (no significant slope, U or dome)" if shape == "flat" else shape
        said = f"Rank histogram: {words}. Coverage is of randomised ranks."
        return [] if shape is None else [said]


RANK_HISTOGRAM = _RankHistogram()


def skce_of(key: jax.Array, data: Data, confidence_level: float, n_resamples: int) -> MeasureResult:
    """The unbiased SKCE of the default kernel, with its interval."""
    kernel = default_kernel(data)
    terms = normal_form(kernel)
    n_draws = few_draws(confidence_level, n_resamples)
    if data.n_kept() <= _MAX_ALL_PAIRS:
        # Multipliers take longer than counts of resamples.
        n_draws = n_resamples if Sampling.of_data(data).is_plain else n_draws
        estimate, interval = skce_and_interval((key, terms, confidence_level), data, n_draws)
    else:
        test = aggregated_skce_test(key, [kernel], data, n_resamples=n_draws, n_cells=_CELLS)
        estimate, level = test.estimate, np.asarray(confidence_level, test.estimate.dtype)
        interval = landmark_interval((terms, estimate, test.interval, level), data)
    return MeasureResult(float(estimate), (float(interval.low), float(interval.high)))


def _has_temperature(data: Data) -> bool:
    is_adapted = data.weights is None and not data.is_censored
    return is_adapted and temperatures.has_temperature(data.predictions)


def interval_of_temperature(data: Data, best: float, confidence_level: float) -> Interval | None:
    """An interval for the temperature whose log scores s_i have the least mean, at u = log T.

    The mean of s_i' is 0 there, and has an interval; a step of Newton takes its ends to those of u
    (Huber's sandwich).
    """
    if is_end_of_range(best):
        return None
    step = 0.1
    scores = np.empty((3, data.n_kept()))
    for k, temperature in enumerate(best * np.exp(step * np.arange(-1.0, 2.0))):
        tempered = with_fields(data, predictions=apply_temperature(data.predictions, temperature))
        scores[k] = np.asarray(log_score(tempered))[: data.n_kept()]
    counts = np.asarray(np.isfinite(scores).all(axis=0))
    before, at, after = scores[:, counts]
    sampling = Sampling.of_data(data).of_rows(counts)
    curvature = float(sampling.shares() @ (before - 2 * at + after)) / step**2
    ends = mean_interval((after - before) / (2 * step), confidence_level, sampling=sampling)
    if ends is None or not curvature > 0:
        return None
    low, high = ends
    return best * math.exp(-high / curvature), best * math.exp(-low / curvature)


def _name_of_temperature(case: Case) -> str:
    is_normal = isinstance(case.data.predictions, Normal)
    return wording.VARIANCE_FACTOR if is_normal else wording.BEST_TEMPERATURE


def events_of(case: Case) -> dict[str, MeasureResult]:
    """The measures of events; empty for other predictions."""
    return MEASURES.of(case) if case.data.predictions.n_labels == 2 else {}


def ratio_in_words(ratio: MeasureResult, level: float) -> str:
    """Observed over expected events with its interval."""
    return wording.with_interval("O/E {}", ratio.value, ratio.interval, level)


def slope_in_words(slope: MeasureResult, case: Case, text: str = f"{SLOPE} {{}}") -> str:
    """The calibration slope with its interval, and what it shows if that excludes 1."""
    said = wording.with_interval(text, slope.value, slope.interval, case.level)
    low, high = slope.interval or (1.0, 1.0)
    if low <= 1 <= high:
        return said
    alone = "" if case.rejected else " by this interval alone"
    return f"{said}, risks too {'extreme' if high < 1 else 'moderate'}{alone}"


def confidence_of(case: Case) -> tuple[bool, str] | None:
    """Whether a model is over-confident, and the number that says by how much, as text.

    It is the calibration slope of events, and else the fitted temperature.
    """
    slope, best = events_of(case).get(SLOPE), BEST_TEMPERATURE.of(case)
    if slope is not None and slope.interval is not None:
        return slope.value < 1, slope_in_words(slope, case)
    if best is None:
        return None
    value = wording.temperature_text(best.value) if best.interval is None else "{}"
    text = f"{_name_of_temperature(case)} {value}"
    return best.value > 1, wording.with_interval(text, *best, case.level)
