"""A classifier whose probabilities are mended."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from calibjax._rows import filled_up
from calibjax.distributions import Categorical
from calibjax.evaluation import read_dependence
from calibjax.recalibration import Recalibrator, fit_recalibrator
from calibjax.sklearn._labels import check_has_probabilities, places_of, probabilities_of
from calibjax.sklearn._meta import Wrapper, fitted_clone
from calibjax.sklearn._rows import columns_of, filled_columns, held_out, known_of


class RecalibratedClassifier(ClassifierMixin, Wrapper):
    """A classifier whose probabilities are mended by `fit_recalibrator`.

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

    classes_: np.ndarray
    estimator_: Any
    recalibrator_: Recalibrator

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, clusters: Any = None, times: Any = None
    ) -> "RecalibratedClassifier":
        """Fits the estimator and the map.

        Args:
            X: features ``[n, d]``, in whatever form the estimator takes.
            y: classes ``[n]``.
            sample_weight: how much each row counts, for the map, and for an estimator that takes
                it; None if all count the same.
            clusters: names or numbers of clusters ``[n]``: rows of one, such as a patient, may
                depend on each other, and are in one fold.
            times: numbers or dates ``[n]``, of which neighbours may depend on each other: folds are
                blocks of consecutive ones. Not with clusters.
        """
        X, y = indexable(X, column_or_1d(y, warn=True))
        check_classification_targets(y)
        check_consistent_length(y, clusters, times)
        dependence = read_dependence(clusters, times, None)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        estimator = self._base()
        if isinstance(estimator, FrozenEstimator):
            self.estimator_ = estimator
            held, probs = np.arange(len(y)), probabilities_of(estimator, X)
        else:
            check_has_probabilities(estimator)
            self.estimator_ = fitted_clone(estimator, X, y, weights)
            classes = self.estimator_.classes_

            def predict(X: Any, y: np.ndarray, weights: np.ndarray | None, new: Any) -> np.ndarray:
                model = fitted_clone(estimator, X, y, weights)
                found = probabilities_of(model, new)
                # A class that did not train the model has the probability 0.
                probs = np.zeros((len(found), len(classes)))
                probs[:, places_of(model.classes_, classes)] = found
                return probs

            held, probs = held_out(self.cv, X, y, weights, dependence, predict, of_classes=True)
        self.classes_ = self.estimator_.classes_
        self._keep_features(self.estimator_)
        labels = places_of(y, self.classes_)[held]
        known = known_of(held, weights, dependence, groups=columns_of(X, self.groups))
        with jax.enable_x64(True):
            predictions = Categorical(jnp.asarray(np.asarray(probs, float)))
            self.recalibrator_ = fit_recalibrator(predictions, labels, self.method, **known)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The mended probabilities of all classes, ``[n, m]``, in the order of ``classes_``."""
        check_is_fitted(self)
        probs = probabilities_of(self.estimator_, X)
        with jax.enable_x64(True):
            groups = filled_columns(columns_of(X, self.groups))
            mended = self.recalibrator_(Categorical(jnp.asarray(filled_up(probs))), groups)
            found = np.asarray(mended.probs)[: len(probs)]
        return found / found.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> np.ndarray:
        """The class with the largest mended probability, ``[n]``."""
        places = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[places]

    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator
