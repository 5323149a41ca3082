"""Would recalibration mend a model?  What it does to rows that did not fit it, in words."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr

from calibjax._distribution import Distribution
from calibjax._rows import Data, first_rows, padded
from calibjax.distributions import Empirical, Normal, Quantiles
from calibjax.evaluation._wording import number
from calibjax.hypothesis_tests import calibration_test
from calibjax.recalibration import cross_fit
from calibjax.scores import crps

# Half of fewer rows is too few for a fit of several numbers, and for a test.
LEAST_ROWS = 200
# With more probabilities the fits take as long as the evaluation.
_MOST_NUMBERS = 2**18
# The best single methods; a matrix of more classes has too many numbers.
_OF_TWO, _OF_MANY, _OF_VERY_MANY, _MANY = "spline", "sms", "svs", 200
# Of numbers; among more rows than this, a map that looks for alike ones takes seconds.
_OF_NUMBERS, _OF_MANY_NUMBERS, _MANY_ROWS = "auto", "pit_spline", 2000
FOLDS = 5


@dataclasses.dataclass(frozen=True)
class Mending:
    """What a recalibration does to rows that did not fit it.

    Args:
        method: the one of `fit_recalibrator`.
        before: the mean score of all rows: of labels the log score in nats, of numbers the CRPS in
            units of the targets.
        after: the same of `cross_fit`, in which each row has a map that did not see its fold.
        pvalue: the p-value of `calibration_test` after it.
        score: "log score" or "CRPS".
    """

    method: str
    before: float
    after: float
    pvalue: float
    score: str = "log score"

    def in_words(self, level: float, is_segment_wrong: bool = False) -> str:
        """What it does, in one sentence; empty if the score does not become smaller.

        Where a segment is wrong, the test of all rows together does not say that it no longer is.
        """
        if not self.after < self.before:
            return ""
        ends = "no longer rejects" if self.pvalue > level else "still rejects"
        of_all = " of all rows together" if is_segment_wrong else ""
        beside = "; a recalibration with groups may mend segments, too" if is_segment_wrong else ""
        return (
            f"Recalibrating with {self.method} takes the {self.score} from "
            f"{number(self.before)} to {number(self.after)} on rows that did not fit it, "
            f"and then the test{of_all} {ends} (p = {self.pvalue:.3g}){beside}."
        )


def best_method(n_classes: int) -> str:
    """The method that predicts new rows best on average, among those that take no time."""
    if n_classes == 2:
        return _OF_TWO
    return _OF_MANY if n_classes <= _MANY else _OF_VERY_MANY


def mending_of(
    key: jax.Array, predictions: Distribution, targets: np.ndarray, n_resamples: int
) -> Mending | None:
    """What the best method does to predictions; None of few or very many rows.

    The test has the key, the shapes and so the program of the evaluation.  There is None, too, of
    families of numbers that are not the same after a map: they would need another program.
    """
    if len(targets) < LEAST_ROWS:
        return None
    n_classes = predictions.n_labels
    if n_classes is None:
        return _of_numbers(key, predictions, targets, n_resamples)
    if n_classes < 2 or len(targets) * n_classes > _MOST_NUMBERS:
        return None
    method = best_method(n_classes)
    mended = cross_fit(predictions, targets, method, FOLDS)
    before, after = (mean_log_score(p, targets) for p in (predictions, mended))
    return Mending(method, before, after, _pvalue(key, mended, targets, n_resamples))


def _of_numbers(
    key: jax.Array, predictions: Distribution, targets: np.ndarray, n_resamples: int
) -> Mending | None:
    size = sum(x.size for x in jax.tree.leaves(predictions))
    if size > _MOST_NUMBERS or not _stays_what_it_is(predictions):
        return None
    if isinstance(predictions, Normal):
        method = "shift_scale"
    else:
        method = _OF_NUMBERS if len(targets) <= _MANY_ROWS else _OF_MANY_NUMBERS
    mended = cross_fit(predictions, targets, method, FOLDS)
    if isinstance(predictions, Normal):
        # Shifted and scaled in normal scores it is normal again.
        loc, scale = _loc_and_scale(mended)
        mended = Normal(loc, scale)
    before, after = (_mean_crps(p, targets) for p in (predictions, mended))
    pvalue = _pvalue(key, mended, targets, n_resamples)
    return Mending(method, before, after, pvalue, score="CRPS")


def _stays_what_it_is(predictions: Distribution) -> bool:
    if isinstance(predictions, Empirical):
        is_plain = predictions.weights is None and predictions.target_shape == "n"
        return is_plain and jnp.shape(predictions.samples)[1] >= 2
    return isinstance(predictions, (Normal, Quantiles))


@jax.jit
def _loc_and_scale(p: Distribution) -> tuple[jax.Array, jax.Array]:
    low, middle, high = (p.quantile(ndtr(z)) for z in (-1.0, 0.0, 1.0))
    return middle, (high - low) / 2


def _pvalue(key: jax.Array, p: Distribution, targets: np.ndarray, n_resamples: int) -> float:
    test = calibration_test(key, padded(Data(p, targets)), n_resamples=n_resamples)
    return round(float(test.pvalue), 6)


def _mean_crps(predictions: Distribution, targets: np.ndarray) -> float:
    scores = crps(padded(Data(predictions, targets)))
    return float(np.mean(np.asarray(first_rows(scores, len(targets)), float)))


def mean_log_score(predictions: Distribution, targets: np.ndarray) -> float:
    """The mean log score of predictions of labels, with NumPy."""
    probs = np.asarray(predictions.label_probabilities(), float)
    with np.errstate(divide="ignore"):
        return -float(np.mean(np.log(probs[np.arange(len(targets)), targets])))
