"""A classifier whose probabilities are recalibrated, and classes of scikit-learn as labels."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets

from calibjax.distributions import Categorical
from calibjax.sklearn._estimators import Recalibrated, fitted_clone


class RecalibratedClassifier(ClassifierMixin, Recalibrated):
    """A classifier whose probabilities are recalibrated by `fit_recalibrator`.

    The map is fitted to predictions of rows that did not train the model that made them, by
    cross-validation, and the estimator is fitted again to all rows: as
    ``CalibratedClassifierCV(ensemble=False)`` does, with the maps of calibjax in place of its two.
    Rows count as often as they are held out, and not at all if they never are, as the first ones of
    a ``TimeSeriesSplit``.
    A model that is trained already is passed as ``FrozenEstimator(model)``; then all rows given to
    `fit` fit the map, and none of them should have trained the model.

    Args:
        estimator: a classifier with `predict_proba`; None for ``LogisticRegression()``.
        method: as in `fit_recalibrator`, such as "auto", "temperature" or "sms".
        cv: what `sklearn.model_selection.check_cv` takes: a number of folds, a splitter, or a list
            of pairs of rows.
        groups: names of columns of X, or positions in an array, such as ``["region"]``: the map
            knows these groups of rows. The estimator sees them, too; a ``ColumnTransformer`` in
            front of it may drop them.

    After `fit`: ``classes_``; ``estimator_``, fitted to all rows; ``recalibrator_``, the map.

    See also:
        `fit_recalibrator`, `cross_fit`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.metrics import log_loss
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import RecalibratedClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> for model in (GaussianNB(), RecalibratedClassifier(GaussianNB(), method="sms")):
        ...     probabilities = model.fit(X[::2], y[::2]).predict_proba(X[1::2])
        ...     print(round(log_loss(y[1::2], probabilities), 1))
        4.8
        0.6
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "auto",
        cv: Any = 5,
        groups: Sequence[str | int] | None = None,
    ) -> None:
        self.estimator, self.method, self.cv, self.groups = estimator, method, cv, groups

    @property
    def estimator_(self) -> Any:
        """The classifier that was fitted to all rows."""
        return self.estimators_[0]

    @property
    def classes_(self) -> np.ndarray:
        """The classes, in the order of the probabilities."""
        return self.estimator_.classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        """Recalibrated probabilities of all classes, ``[n, m]``, in the order of ``classes_``."""
        with jax.enable_x64(True):
            recalibrated, n = self._recalibrated(X)
            found = np.asarray(recalibrated.probs)[:n]
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest recalibrated probability, ``[n]``."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _check_targets(self, y: np.ndarray) -> None:
        check_classification_targets(y)

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _fitted(self, X: Any, y: np.ndarray, weights: np.ndarray | None) -> list[Any]:
        check_has_probabilities(self._base())
        return [fitted_clone(self._base(), X, y, weights)]

    def _numbers(self, models: list[Any], X: Any) -> np.ndarray:
        (model,) = models
        found = probabilities_of(model, X)
        # A class that did not train the model has the probability 0.
        probs = np.zeros((len(found), len(self.classes_)))
        probs[:, labels_of(model.classes_, self.classes_)] = found
        return probs

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return labels_of(y, self.classes_)

    def _forecasts(self, numbers: np.ndarray) -> Categorical:
        return Categorical(jnp.asarray(numbers))


def labels_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The numbers of classes among sorted ones, ``[n]``.

    Raises:
        ValueError: a label is no class.
    """
    labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.asarray(classes)[labels] != y
    if unknown.any():
        got = np.asarray(y)[np.argmax(unknown)]
        raise ValueError(f"y must hold the classes {list(classes)} of the estimator, got {got!r}.")
    return labels.astype(np.int32)


def check_has_probabilities(estimator: Any) -> None:
    """A TypeError if an estimator predicts no probabilities."""
    if not hasattr(estimator, "predict_proba"):
        raise TypeError(
            f"estimator must have predict_proba, got {type(estimator).__name__}, which has none."
        )


def probabilities_of(estimator: Any, X: Any) -> np.ndarray:
    """The probabilities of all classes, ``[n, m]``, in float64."""
    check_has_probabilities(estimator)
    return np.asarray(estimator.predict_proba(X), float)


def labels_and_forecasts(estimator: Any, X: Any, y: Any) -> tuple[Categorical, np.ndarray]:
    """Predictions of a classifier, and what came."""
    probs = probabilities_of(estimator, X)
    return Categorical(jnp.asarray(probs)), labels_of(np.asarray(y), estimator.classes_)
