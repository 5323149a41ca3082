"""Would a few numbers mend a model?  Recalibrations, fitted and judged on different rows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._rows import check_data
from calibjax.evaluation._verdict import temperature_text
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import has_temperature
from calibjax.recalibration import (
    affine_scaling,
    fit_recalibration_of_data,
    fit_temperature,
    temper,
    vector_scaling,
)
from calibjax.scores import log_score

# Half of fewer rows is too few for a fit of several numbers, and for a test.
_LEAST_ROWS = 200


@dataclasses.dataclass(frozen=True)
class Remedy:
    """What a recalibration does to rows that did not fit it.

    Args:
        name: the recalibration.
        fitted: its fitted numbers, in words.
        n: the number of rows that judge it.
        log_score: their mean log score, in nats.
        pvalue: their p-value of `calibration_test`.
    """

    name: str
    fitted: str
    n: int
    log_score: float
    pvalue: float


def remedies_of(
    key: jax.Array, predictions: Any, targets: np.ndarray, n_resamples: int
) -> list[Remedy]:
    """The model as it is, and recalibrated on rows 0, 2, …; judged on rows 1, 3, ….

    There are none for families that have no temperature, and for few rows.
    """
    if len(targets) < _LEAST_ROWS or not has_temperature(predictions):
        return []
    # The same number of rows in both halves, which share what is compiled.
    n = len(targets) // 2
    fit: Any = predictions[0 : 2 * n : 2], jnp.asarray(targets[0 : 2 * n : 2])
    judge, judge_targets = predictions[1 : 2 * n : 2], jnp.asarray(targets[1 : 2 * n : 2])

    def judged(name: str, fitted: str, recalibrated: Any) -> Remedy:
        test = calibration_test(key, recalibrated, judge_targets, n_resamples=n_resamples)
        score = float(jnp.mean(log_score(recalibrated, judge_targets)))
        return Remedy(name, fitted, n, score, float(test.pvalue))

    temperature = fit_temperature(*fit)
    name, transform, start, words = _second_transform(predictions)
    parameters, is_minimum = fit_recalibration_of_data(transform, start, check_data(*fit))
    fitted = words(parameters) + (
        "" if is_minimum else "; there the search ended, without a minimum"
    )
    return [
        judged("as it is", "", judge),
        judged("temperature", temperature_text(float(temperature)), temper(judge, temperature)),
        judged(name, fitted, transform(parameters, judge)),
    ]


def _second_transform(predictions: Any) -> tuple[str, Callable[..., Any], Any, Callable[..., str]]:
    """A transform with more numbers than a temperature, where it starts, and what it fitted."""
    probabilities = predictions.label_probabilities()
    if probabilities is None:
        return "location and scale", affine_scaling, (0.0, 1.0, 0.0), _affine_words
    shift: Any = 0.0
    if predictions.binary_probability() is None:
        shift = jnp.zeros(probabilities.shape[1], jnp.result_type(float))
    return "vector scaling", vector_scaling, (1.0, shift), _vector_words


def _affine_words(parameters: Any) -> str:
    intercept, slope, log_factor = map(float, parameters)
    return f"mean {intercept:+.3g} + {slope:.3g} mean; deviation × {np.exp(log_factor):.3g}"


def _vector_words(parameters: Any) -> str:
    slope, shifts = (np.atleast_1d(np.asarray(x)) for x in parameters)
    if len(shifts) > 1:
        shifts = shifts - shifts.mean()  # a shift of all logits does nothing
    ends = f"{shifts[0]:+.2g}" if len(shifts) == 1 else f"{shifts.min():+.2g} … {shifts.max():+.2g}"
    return f"logits × {slope[0]:.3g}, shifted by {ends}"
