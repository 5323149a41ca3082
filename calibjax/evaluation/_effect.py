"""How far off a model is: the SKCE with its interval, and the temperatures that say how much."""

import dataclasses

import jax
import jax.numpy as jnp

from calibjax import intervals
from calibjax._base.struct import widest_dtype
from calibjax._data import Between, Data, Distribution, padded
from calibjax.discrepancy import normal_form
from calibjax.distributions import Univariate
from calibjax.evaluation._metrics import Measure
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import aggregated_skce_test
from calibjax.intervals import Sampling
from calibjax.recalibration import fit_temperature

# The interval from all pairs of rows takes a second for so many; landmarks serve for more, and for
# rows that have weights or depend on each other.
_MAX_ALL_PAIRS = 2**13
# So many draws for one beyond the ends of an interval from landmarks, which the test of calibration
# does not share: more draws move its ends by less than their own uncertainty.
_DRAWS_BEYOND = 10


@dataclasses.dataclass(frozen=True)
class Effect:
    """The size of an error, and its direction.

    Args:
        skce: the unbiased SKCE with the default kernel, and its confidence interval.
        equivalent: the temperature that shows as large an error; None for a family that has no
            temperature, or for which it takes minutes, for weighted rows, and for targets that are
            not known exactly.
        best_temperature: what `fit_temperature` finds: above 1 the model is too sure; or None.
    """

    skce: Measure
    equivalent: intervals.EquivalentTemperature | None
    best_temperature: float | None


def effect_of(key: jax.Array, data: Data, confidence_level: float, n_resamples: int) -> Effect:
    """The SKCE of the default kernel, and what it is as a temperature."""
    predictions, kernel = data.predictions, default_kernel(data)
    terms = normal_form(kernel)
    plain = Sampling.of_data(data).is_plain
    if plain and data.n_kept() <= _MAX_ALL_PAIRS:
        estimate, interval = intervals.skce_and_interval(
            (key, terms, confidence_level), data, n_resamples
        )
    else:
        n_draws = min(round(_DRAWS_BEYOND / (1 - confidence_level)) - 1, n_resamples)
        test = aggregated_skce_test(key, [kernel], data, n_resamples=n_draws)
        estimate, interval = test.estimate, test.confidence_interval(confidence_level)
    found = Measure(float(estimate), (float(interval.low), float(interval.high)))
    is_adapted = data.weights is None and not isinstance(data.targets, Between)
    if not is_adapted or not intervals.has_temperature(predictions):
        return Effect(found, None, None)
    best = float(fit_temperature(data))
    if isinstance(predictions, Univariate):
        return Effect(found, None, best)
    return Effect(found, intervals.temperature_of_errors((terms, estimate, interval), data), best)


def deviation_ratio(predictions: Distribution, temperature: float) -> float:
    """The standard deviation of a prediction over the one at a temperature; the median of rows."""
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    rows = padded(Data.unchecked(predictions))
    return float(intervals.deviation_ratio(rows, jnp.asarray(temperature, dtype)))
