"""Would a few numbers mend a model?  Recalibrations, fitted and judged on different rows."""

import dataclasses
from typing import Any

import jax
import numpy as np

from calibjax import recalibration
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax.evaluation._keys import Keys
from calibjax.evaluation._mending import FOLDS, LEAST_ROWS, best_method, mean_log_score
from calibjax.evaluation._summary import temperature_text
from calibjax.hypothesis_tests import calibration_test
from calibjax.intervals import has_temperature
from calibjax.scores import log_score

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
    keys: Keys, predictions: Distribution, targets: np.ndarray, n_resamples: int, pvalue: float
) -> list[Remedy]:
    """The model as it is and recalibrated, judged on rows that did not fit what mends them.

    Of labels these are all rows, by `cross_fit`, so that the model as it is has the p-value of the
    evaluation; else rows 1, 3, … by a fit to rows 0, 2, ….  There
    are none for families that have no temperature, and for few rows.
    """
    if len(targets) < LEAST_ROWS or not has_temperature(predictions):
        return []
    if predictions.has_labels:
        return _remedies_of_labels(keys.test, predictions, targets, n_resamples, pvalue)
    # The same number of rows in both halves, which share what is compiled.
    n = len(targets) // 2
    if n * (predictions.n_labels or 1) > _MANY_NUMBERS:
        n_resamples = min(n_resamples, _FEW_DRAWS)
    rows = jax.tree.map(np.asarray, Data.unchecked(predictions, targets))
    fit, judge = (padded(jax.tree.map(lambda x, k=k: x[k : 2 * n : 2], rows)) for k in (0, 1))

    def judged(name: str, fitted: str, recalibrated: Any) -> Remedy:
        data = judge.replace(predictions=recalibrated)
        test = calibration_test(keys.remedies, data, n_resamples=n_resamples)
        score = np.mean(np.asarray(log_score(data))[:n], dtype=np.float64)
        return Remedy(name, fitted, n, float(score), float(test.pvalue))

    temperature = recalibration.fit_temperature_of_data(fit)
    tempered = recalibration.temper(judge.predictions, temperature)
    return [
        judged("as it is", "", judge.predictions),
        judged("temperature", temperature_text(float(temperature)), tempered),
    ]


def _ending(is_minimum: bool) -> str:
    return "" if is_minimum else "; there the search ended, without a minimum"


def _remedies_of_labels(
    key: jax.Array, predictions: Distribution, targets: np.ndarray, n_resamples: int, pvalue: float
) -> list[Remedy]:
    """By one number, and by the best method; the words are of maps fitted to all rows."""
    n, n_classes = len(targets), predictions.n_labels
    assert n_classes is not None
    if n * n_classes > _MANY_NUMBERS:
        n_resamples = min(n_resamples, _FEW_DRAWS)

    def judged(name: str, fitted: str, mended: Distribution) -> Remedy:
        data = padded(Data.unchecked(mended, targets))
        test = calibration_test(key, data, n_resamples=n_resamples)
        return Remedy(name, fitted, n, mean_log_score(mended, targets), float(test.pvalue))

    found = [Remedy("as it is", "", n, mean_log_score(predictions, targets), pvalue)]
    for method in ("temperature", best_method(n_classes)):
        fit = recalibration.fit_recalibrator(predictions, targets, method).fit
        mended = recalibration.cross_fit(predictions, targets, method, FOLDS)
        found.append(judged(method, fit.words + _ending(fit.converged), mended))
    return found
