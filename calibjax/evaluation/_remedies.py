"""Would a few numbers mend a model?  Recalibrations, fitted and judged on different rows."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import recalibration
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax.evaluation._rows import n_labels
from calibjax.evaluation._summary import temperature_text
from calibjax.hypothesis_tests import calibration_test_of_data
from calibjax.intervals import has_temperature
from calibjax.scores import log_score_of_data

# Half of fewer rows is too few for a fit of several numbers, and for a test.
_LEAST_ROWS = 200
# Three tests of more probabilities take long: fewer draws tell p = 0.005 from 0.5 as well.
_MANY_NUMBERS, _FEW_DRAWS = 2**18, 199


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
    key: jax.Array, predictions: Distribution, targets: np.ndarray, n_resamples: int
) -> list[Remedy]:
    """The model as it is, and recalibrated on rows 0, 2, …; judged on rows 1, 3, ….

    There are none for families that have no temperature, and for few rows.
    """
    if len(targets) < _LEAST_ROWS or not has_temperature(predictions):
        return []
    # The same number of rows in both halves, which share what is compiled.
    n = len(targets) // 2
    if n * (n_labels(predictions) or 1) > _MANY_NUMBERS:
        n_resamples = min(n_resamples, _FEW_DRAWS)
    rows = jax.tree.map(np.asarray, Data(predictions, targets))
    fit, judge = (padded(jax.tree.map(lambda x, k=k: x[k : 2 * n : 2], rows)) for k in (0, 1))

    def judged(name: str, fitted: str, recalibrated: Any) -> Remedy:
        data = dataclasses.replace(judge, predictions=recalibrated)
        test = calibration_test_of_data(key, data, n_resamples=n_resamples)
        score = np.mean(np.asarray(log_score_of_data(data))[:n], dtype=np.float64)
        return Remedy(name, fitted, n, float(score), float(test.pvalue))

    temperature = recalibration.fit_temperature_of_data(fit)
    name, transform, start, words = _second_transform(judge.predictions)
    parameters, is_minimum = recalibration.fit_recalibration_of_data(transform, start, fit)
    fitted = words(parameters) + (
        "" if is_minimum else "; there the search ended, without a minimum"
    )
    tempered, transformed = _recalibrated(judge.predictions, temperature, parameters, transform)
    return [
        judged("as it is", "", judge.predictions),
        judged("temperature", temperature_text(float(temperature)), tempered),
        judged(name, fitted, transformed),
    ]


@functools.partial(jax.jit, static_argnames="transform")
def _recalibrated(
    predictions: Distribution,
    temperature: jax.Array,
    parameters: Any,
    transform: Callable[..., Any],
) -> tuple[Any, Any]:
    return recalibration.temper(predictions, temperature), transform(parameters, predictions)


def _second_transform(
    predictions: Distribution,
) -> tuple[str, Callable[..., Any], Any, Callable[..., str]]:
    """A transform with more numbers than a temperature, where it starts, and what it fitted."""
    n_classes = n_labels(predictions)
    if n_classes is None:
        return "location and scale", recalibration.affine_scaling, (0.0, 1.0, 0.0), _affine_words
    shift: Any = 0.0
    if not predictions.is_binary:
        shift = np.zeros(n_classes, jnp.result_type(float))
    return "vector scaling", recalibration.vector_scaling, (1.0, shift), _vector_words


def _affine_words(parameters: Any) -> str:
    intercept, slope, log_factor = map(float, parameters)
    return f"mean {intercept:+.3g} + {slope:.3g} mean; deviation × {np.exp(log_factor):.3g}"


def _vector_words(parameters: Any) -> str:
    slope, shifts = (np.atleast_1d(np.asarray(x)) for x in parameters)
    if len(shifts) > 1:
        shifts = shifts - shifts.mean()  # a shift of all logits does nothing
    ends = f"{shifts[0]:+.2g}" if len(shifts) == 1 else f"{shifts.min():+.2g} … {shifts.max():+.2g}"
    return f"logits × {slope[0]:.3g}, shifted by {ends}"
