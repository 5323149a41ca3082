"""How far off a model is: the SKCE with its interval, and the temperatures that say how much."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax.curves import contributions
from calibjax.distributions._univariate import Univariate
from calibjax.evaluation._measures import Measure
from calibjax.expectations import default_kernel
from calibjax.hypothesis_tests import aggregated_skce_test
from calibjax.intervals import (
    EquivalentTemperature,
    has_temperature,
    skce_confidence_interval,
    temperature_of_errors,
)
from calibjax.recalibration import fit_temperature, temper

# The interval from all pairs of rows takes a second for so many; landmarks serve for more.
_MAX_ALL_PAIRS = 2**13


@dataclasses.dataclass(frozen=True)
class Effect:
    """The size of an error, and its direction.

    Args:
        skce: the unbiased SKCE with the default kernel, and its confidence interval.
        equivalent: the temperature that shows as large an error; None for a family that has no
            temperature, or for which it takes minutes.
        best_temperature: what `fit_temperature` finds: above 1 the model is too sure; or None.
    """

    skce: Measure
    equivalent: EquivalentTemperature | None
    best_temperature: float | None


def effect_of(
    key: jax.Array,
    predictions: Distribution,
    targets: jax.Array,
    confidence_level: float,
    n_resamples: int,
) -> Effect:
    """The SKCE of the default kernel, and what it is as a temperature."""
    kernel = default_kernel(predictions)
    if len(targets) <= _MAX_ALL_PAIRS:
        # The mean is `skce`; the contributions are asked for anyway, and are compiled once.
        estimate = jnp.mean(contributions(kernel, predictions, targets))
        interval = skce_confidence_interval(
            key,
            kernel,
            predictions,
            targets,
            confidence_level=confidence_level,
            n_resamples=n_resamples,
        )
    else:
        test = aggregated_skce_test(key, [kernel], predictions, targets, n_resamples=n_resamples)
        estimate, interval = test.estimate, test.confidence_interval(confidence_level)
    found = Measure(float(estimate), (float(interval.low), float(interval.high)))
    if not has_temperature(predictions):
        return Effect(found, None, None)
    best = float(fit_temperature(predictions, targets))
    if isinstance(predictions, Univariate):
        return Effect(found, None, best)
    data = padded(Data(predictions, targets))
    equivalent = temperature_of_errors(kernel, data, estimate, interval)
    return Effect(found, equivalent, best)


def deviation_ratio(predictions: Any, temperature: float) -> float:
    """The standard deviation of a prediction over the one at a temperature; the median of rows."""
    return float(np.median(predictions.spread() / temper(predictions, temperature).spread()))
