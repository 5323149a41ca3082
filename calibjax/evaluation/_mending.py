"""Would recalibration mend a model?  What it does to rows that did not fit it, in words."""

import dataclasses

import jax
import numpy as np

from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax.evaluation._rows import n_labels
from calibjax.hypothesis_tests import calibration_test_of_data
from calibjax.recalibration import cross_fit

# Half of fewer rows is too few for a fit of several numbers, and for a test.
LEAST_ROWS = 200
# With more probabilities the fits take as long as the evaluation.
_MOST_NUMBERS = 2**18
# The best single methods; a matrix of more classes has too many numbers.
_OF_TWO, _OF_MANY, _OF_VERY_MANY, _MANY = "spline", "sms", "svs", 200
FOLDS = 5


@dataclasses.dataclass(frozen=True)
class Mending:
    """What a recalibration does to rows that did not fit it.

    Args:
        method: the one of `fit_recalibrator`.
        before: the mean log score of all rows, in nats.
        after: the same of `cross_fit`, in which each row has a map that did not see its fold.
        pvalue: the p-value of `calibration_test` after it.
    """

    method: str
    before: float
    after: float
    pvalue: float

    def in_words(self, level: float) -> str:
        """A sentence; empty if the log score does not become smaller."""
        if not self.after < self.before:
            return ""
        ends = "no longer rejects" if self.pvalue > level else "still rejects"
        return (
            f"Recalibrating with {self.method} takes the log score from {self.before:.3g} to "
            f"{self.after:.3g} on rows that did not fit it, and then the test {ends} "
            f"(p = {self.pvalue:.3g})."
        )


def best_method(n_classes: int) -> str:
    """The method that predicts new rows best on average, among those that take no time."""
    if n_classes == 2:
        return _OF_TWO
    return _OF_MANY if n_classes <= _MANY else _OF_VERY_MANY


def mending_of(
    key: jax.Array, predictions: Distribution, targets: np.ndarray, n_resamples: int
) -> Mending | None:
    """What the best method does to predictions of labels; None of others, and of few or many rows.

    The test has the key, the shapes and so the program of the evaluation.
    """
    if len(targets) < LEAST_ROWS:
        return None
    n_classes = n_labels(predictions)
    if n_classes is None or n_classes < 2 or len(targets) * n_classes > _MOST_NUMBERS:
        return None
    method = best_method(n_classes)
    mended = cross_fit(predictions, targets, method, FOLDS)
    test = calibration_test_of_data(key, padded(Data(mended, targets)), n_resamples=n_resamples)
    before, after = (mean_log_score(p, targets) for p in (predictions, mended))
    return Mending(method, before, after, round(float(test.pvalue), 6))


def mean_log_score(predictions: Distribution, targets: np.ndarray) -> float:
    """The mean log score of predictions of labels, with NumPy."""
    probs = np.asarray(predictions.label_probabilities(), float)
    with np.errstate(divide="ignore"):
        return -float(np.mean(np.log(probs[np.arange(len(targets)), targets])))
