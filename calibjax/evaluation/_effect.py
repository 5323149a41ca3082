"""How large an error is: the SKCE, and the temperature that mends it or shows as large a one."""

import dataclasses
import math

import jax
import numpy as np

from calibjax import intervals
from calibjax._base.struct import with_fields
from calibjax._data.data import Data
from calibjax._data.interval_censored import Between
from calibjax.discrepancy import normal_form
from calibjax.distributions import Univariate
from calibjax.evaluation._measures import Measure, few_draws
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import aggregated_skce_test
from calibjax.intervals import Interval, Sampling, mean_interval
from calibjax.recalibration import fit_temperature, is_end_of_range, temper
from calibjax.scores import log_score

# The interval from all pairs of rows takes a second for so many; cells serve for more, and for
# rows that have weights or depend on each other, with nearly the same interval.
_MAX_ALL_PAIRS = 2**13
# With as many cells it is within 1 % of that from all pairs.
_CELLS = 2**10


@dataclasses.dataclass(frozen=True)
class Effect:
    """The size of an error, and its direction.

    Args:
        skce: the unbiased SKCE with the default kernel, and its confidence interval.
        equivalent: the temperature that shows as large an error; None for a family that has no
            temperature, or for which it takes minutes, for weighted rows, and for targets that are
            not known exactly.
        best_temperature: what `fit_temperature` finds: above 1 the model is over-confident; or
            None.
        of_temperature: a confidence interval for it; None at the ends of the range.
    """

    skce: Measure
    equivalent: intervals.EquivalentTemperature | None
    best_temperature: float | None
    of_temperature: Interval | None = None


def effect_of(key: jax.Array, data: Data, confidence_level: float, n_resamples: int) -> Effect:
    """The SKCE of the default kernel, and what it is as a temperature."""
    predictions, kernel = data.predictions, default_kernel(data)
    terms = normal_form(kernel)
    if Sampling.of_data(data).is_plain and data.n_kept() <= _MAX_ALL_PAIRS:
        estimate, interval = intervals.skce_and_interval(
            (key, terms, confidence_level), data, n_resamples
        )
    else:
        n_draws = few_draws(confidence_level, n_resamples)
        test = aggregated_skce_test(key, [kernel], data, n_resamples=n_draws, n_features=_CELLS)
        estimate, level = test.estimate, np.asarray(confidence_level, test.estimate.dtype)
        interval = intervals.landmark_interval((terms, estimate, test.interval, level), data)
    found = Measure(float(estimate), (float(interval.low), float(interval.high)))
    is_adapted = data.weights is None and not isinstance(data.targets, Between)
    if not is_adapted or not intervals.has_temperature(predictions):
        return Effect(found, None, None)
    best = float(fit_temperature(data))
    of_best = _interval_of_temperature(data, best, confidence_level)
    if isinstance(predictions, Univariate):
        return Effect(found, None, best, of_best)
    equivalent = intervals.temperature_of_errors((terms, estimate, interval), data)
    return Effect(found, equivalent, best, of_best)


def _interval_of_temperature(data: Data, best: float, confidence_level: float) -> Interval | None:
    """An interval for the temperature whose log scores s_i have the least mean, at u = log T.

    The mean of s_i' is 0 there, and has an interval; a step of Newton takes its ends to those of u
    (Huber's sandwich).
    """
    if is_end_of_range(best):
        return None
    step = 0.1
    tempered = (temper(data.predictions, t) for t in best * np.exp(step * np.arange(-1.0, 2.0)))
    with_others = (with_fields(data, predictions=p) for p in tempered)
    scores = np.array([log_score(x) for x in with_others], np.float64)[:, : data.n_kept()]
    counts = np.asarray(np.isfinite(scores).all(axis=0))
    before, at, after = scores[:, counts]
    sampling = Sampling.of_data(data).of_rows(counts)
    curvature = float(sampling.shares() @ (before - 2 * at + after)) / step**2
    ends = mean_interval((after - before) / (2 * step), confidence_level, sampling=sampling)
    if ends is None or not curvature > 0:
        return None
    low, high = ends
    return best * math.exp(-high / curvature), best * math.exp(-low / curvature)
