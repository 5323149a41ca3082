"""How large an error is: the SKCE, measures, and temperatures that correct it or show as much."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import widest_dtype, with_fields
from calibjax._base.text import format_distinct
from calibjax._data.data import Data, Rows
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax.discrepancy import normal_form
from calibjax.distributions import Univariate
from calibjax.evaluation import _wording as wording
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import aggregated_skce_test
from calibjax.intervals import EquivalentTemperature, temperatures
from calibjax.intervals.skce_interval import landmark_interval, skce_and_interval
from calibjax.measures.families import few_draws, measures
from calibjax.measures.measure import OBSERVED, PREDICTED, MeasureResult
from calibjax.measures.quantiles import coverages_not_printed
from calibjax.measures.sampling import Interval, Sampling, mean_interval
from calibjax.recalibration import fit_temperature, is_end_of_range, temper
from calibjax.scores import log_score

# The interval from all pairs of rows takes a second for this many rows; cells serve for more, with
# nearly the same interval of independent rows.
_MAX_ALL_PAIRS = 2**13
# With as many cells it is within 1 % of that from all pairs.
_CELLS = 2**10
# The largest equivalent temperature that is an informative bound on an error.
_TIGHT_BOUND = 1.5


@dataclasses.dataclass(frozen=True)
class Effect:
    """The size of an error.

    Args:
        skce: the unbiased SKCE with the default kernel, and its confidence interval.
        equivalent: the temperature that shows as large an error; None for a family that has no
            temperature, or for which it takes minutes, for weighted rows, and for targets that are
            not known exactly.
    """

    skce: MeasureResult
    equivalent: EquivalentTemperature | None


class _Effect(Section[Effect]):
    """The SKCE with its interval, and the temperature that shows as large an error."""

    def compute(self, case: Case) -> Effect:
        return effect_of(case.random_keys.effect, case.padded, 1 - case.level, N_RESAMPLES)

    def clause(self, case: Case) -> str | None:
        """A bound on the error of a model that is not rejected; None without a tight one."""
        equivalent = self.of(case).equivalent
        if equivalent is None:
            return None
        bound = float(equivalent.confidence_interval.high)
        upper = over_confident(case.data.predictions, bound) if bound <= _TIGHT_BOUND else None
        confidence = f"{100 * (1 - case.level):.3g} % confidence"
        return upper and f"at most as far off as if {upper}, with {confidence}"

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        skce, equivalent = self.of(case).skce, self.of(case).equivalent
        yield "SKCE", skce
        if equivalent is not None:
            low, high = map(float, equivalent.confidence_interval)
            value = float(equivalent.temperature)
            yield "equivalent temperature", MeasureResult(value, (low, high))

    def to_dict(self, case: Case) -> dict[str, Any]:
        effect, equivalent = self.of(case), None
        if effect.equivalent is not None:
            value, ends = effect.equivalent.temperature, effect.equivalent.confidence_interval
            equivalent = {"value": value, "interval": ends}
        return {
            "skce": dataclasses.asdict(effect.skce),
            "equivalent_temperature": equivalent,
            "deviation_ratio": effect.equivalent and effect.equivalent.deviation_ratio,
        }


EFFECT = _Effect()


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

    def rows(self, case: Case) -> Iterable[tuple[str, MeasureResult]]:
        best = self.of(case)
        return () if best is None else ((wording.BEST_TEMPERATURE, MeasureResult(*best)),)

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
        # The verdict has both means where they differ.
        left_out = PREDICTED, OBSERVED, *coverages_not_printed(self.of(case))
        return [x for x in self.of(case).items() if x[0] not in left_out]


MEASURES = _Measures()


def effect_of(key: jax.Array, data: Data, confidence_level: float, n_resamples: int) -> Effect:
    """The SKCE of the default kernel, and what it is as a temperature."""
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
    found = MeasureResult(float(estimate), (float(interval.low), float(interval.high)))
    if isinstance(data.predictions, Univariate) or not _has_temperature(data):
        return Effect(found, None)
    return Effect(found, temperatures.temperature_of_errors((terms, estimate, interval), data))


def _has_temperature(data: Data) -> bool:
    is_adapted = data.weights is None and not isinstance(data.targets, Between)
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
        tempered = with_fields(data, predictions=temper(data.predictions, temperature))
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


def over_confident(predictions: Distribution, temperature: float) -> str | None:
    """What is wrong with a model whose best temperature is above 1; None unless it is finite."""
    if not 1 < temperature < math.inf:
        return None
    if isinstance(predictions, Labels):
        return f"its logits were {format_distinct(temperature, 1.0)[0]} times too large"
    ratio, _ = format_distinct(deviation_ratio(predictions, temperature), 1.0, 2)
    return f"its standard deviations were {ratio} of the right ones"


def under_confident(predictions: Distribution, temperature: float) -> str:
    """What is wrong with a model whose best temperature is below 1."""
    least = "at least " if is_end_of_range(temperature) else ""
    if isinstance(predictions, Labels):
        factor, _ = format_distinct(1 / temperature, 1.0)
        return f"its logits should be {least}{factor} times as large"
    ratio, _ = format_distinct(deviation_ratio(predictions, temperature), 1.0)
    return f"its standard deviations are {least}{ratio} times too large"


def deviation_ratio(predictions: Distribution, temperature: float) -> float:
    """The standard deviation of a prediction over the one at a temperature; the median of rows."""
    if not math.isfinite(temperature):
        return 0.0
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    rows = padded(Rows(predictions))
    return float(temperatures.deviation_ratio(rows, jnp.asarray(temperature, dtype)))
