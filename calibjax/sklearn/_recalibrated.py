"""An estimator around another one, whose predictions are recalibrated by a map of held-out rows."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold, PredefinedSplit, StratifiedGroupKFold, check_cv
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from calibjax._base.compile import filled_up
from calibjax._data import Dependence, Distribution
from calibjax.frames import read_dependence
from calibjax.recalibration import Recalibrator, fit_recalibrator


class Recalibrated(MetaEstimatorMixin, BaseEstimator):
    """An estimator that reads the features, and a map that recalibrates what it predicts.

    A subclass says what it predicts, and of which columns of the features the map knows.
    """

    method: str
    cv: Any
    groups: Sequence[str | int] | None
    estimators_: list[Any]
    recalibrator_: Recalibrator

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, clusters: Any = None, times: Any = None
    ) -> Self:
        """Fits the estimator and the map.

        Args:
            X: features ``[n, d]``, in whatever form the estimator takes.
            y: classes or numbers ``[n]``.
            sample_weight: how much each row counts, for the map, and for an estimator that takes
                it; None if all count the same.
            clusters: names or numbers of clusters ``[n]``: rows of one, such as a patient, may
                depend on each other, and are in one fold.
            times: numbers or dates ``[n]``, of which neighbours may depend on each other: folds are
                blocks of consecutive ones. Not with clusters.
        """
        X, y = indexable(X, column_or_1d(y, warn=True))
        self._check_targets(y)
        check_consistent_length(y, clusters, times)
        dependence = read_dependence(clusters, times, None)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        columns = self._columns(X)
        is_fitted = isinstance(self._base(), FrozenEstimator)
        self.estimators_ = [self._base()] if is_fitted else self._fitted(X, y, weights)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        if is_fitted:
            held, numbers = np.arange(len(y)), self._numbers(self.estimators_, X)
        else:
            held, numbers = self._held_out(X, y, weights, dependence)
        clusters, times, _ = dependence
        if clusters is None and times is None and np.any(np.diff(held) == 0):
            # A row that was held out several times is a cluster.
            clusters = np.arange(len(y))
        of_rows = {"weights": weights, "clusters": clusters, "times": times} | columns
        known = {k: jax.tree.map(lambda x: np.asarray(x)[held], x) for k, x in of_rows.items()}
        targets = self._targets(y)[held]
        self._learn(numbers, targets, known["weights"])
        with jax.enable_x64(True):
            self.recalibrator_ = fit_recalibrator(
                self._forecasts(numbers), targets, self.method, **known
            )
        return self

    def _held_out(
        self, X: Any, y: np.ndarray, weights: np.ndarray | None, dependence: Dependence
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows as often as they are held out, and what models say of them that did not see them."""
        held, found = [], []
        for train, test in _folds_of(self.cv, X, y, dependence, is_classifier(self)):
            others, rows = (np.arange(len(y))[np.asarray(x)] for x in (train, test))
            some = None if weights is None else weights[others]
            models = self._fitted(_safe_indexing(X, others), y[others], some)
            found.append(self._numbers(models, _safe_indexing(X, rows)))
            held.append(rows)
        if not sum(map(len, held)):
            raise ValueError("cv must hold out at least 1 row, got none.")
        order = np.argsort(np.concatenate(held), kind="stable")
        return np.concatenate(held)[order], np.concatenate(found)[order]

    def _recalibrated(self, X: Any) -> tuple[Any, int]:
        """The recalibrated predictions, filled up to a bucket, and the number of rows."""
        check_is_fitted(self)
        numbers = self._numbers(self.estimators_, X)
        columns = self._columns(X)
        filled = {
            name: x and {k: filled_up(column) for k, column in x.items()}
            for name, x in columns.items()
        }
        return self.recalibrator_(self._forecasts(filled_up(numbers)), **filled), len(numbers)

    def _columns(self, X: Any) -> dict[str, dict[str, np.ndarray] | None]:
        """What the map looks at beside predictions: arguments of `fit_recalibrator`."""
        return {"groups": columns_of(X, self.groups)}

    def _check_targets(self, y: np.ndarray) -> None:
        """An error unless targets are of the right kind."""

    def _learn(self, numbers: np.ndarray, targets: np.ndarray, weights: np.ndarray | None) -> None:
        """Keeps what forecasts need beside what models say of held-out rows."""

    def _base(self) -> Any:
        """The estimator, or the default one."""
        raise NotImplementedError

    def _fitted(self, X: Any, y: np.ndarray, weights: np.ndarray | None) -> list[Any]:
        """Fitted copies of the estimator."""
        raise NotImplementedError

    def _numbers(self, models: list[Any], X: Any) -> np.ndarray:
        """What models predict, ``[n, K]``."""
        raise NotImplementedError

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets of calibjax, ``[n]``."""
        raise NotImplementedError

    def _forecasts(self, numbers: np.ndarray) -> Distribution:
        """Predictions of calibjax, of what models predict."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def fitted_clone(estimator: Any, X: Any, y: np.ndarray, weights: np.ndarray | None) -> Any:
    """A copy of an estimator, fitted; weights are given to those that take them."""
    takes_weights = weights is not None and has_fit_parameter(estimator, "sample_weight")
    options = {"sample_weight": weights} if takes_weights else {}
    return clone(estimator).fit(X, y, **options)


def columns_of(X: Any, names: Sequence[str | int] | None) -> dict[str, np.ndarray] | None:
    """Columns of features, by names in frames and by positions in arrays; None of none."""
    if names is None:
        return None
    try:
        return {str(name): np.asarray(_safe_indexing(X, name, axis=1)) for name in names}
    except (LookupError, ValueError) as error:
        raise ValueError(f"X must have the columns {list(names)}: {error}.") from error


def _folds_of(
    cv: Any, X: Any, y: np.ndarray, dependence: Dependence, of_classes: bool
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Rows that train a model, and others that fit the map to its predictions.

    Of a number of folds, rows of one cluster are in one fold, and times make blocks of consecutive
    ones.  Splitters are given clusters or times as groups.  Folds of classes have all of them, as
    far as that can be.
    """
    clusters, times, _ = dependence
    if not isinstance(cv, Integral) or (clusters is None and times is None):
        splitter = check_cv(cv, y, classifier=of_classes)
        return splitter.split(X, y, times if clusters is None else clusters)
    if clusters is not None:
        by_cluster = StratifiedGroupKFold if of_classes else GroupKFold
        return by_cluster(int(cv)).split(X, y, clusters)
    number = np.unique(np.asarray(times), return_inverse=True)[1]
    n_times = int(number.max()) + 1
    if n_times < 2:
        raise ValueError("times must have at least 2 different values, got 1.")
    return PredefinedSplit(number * min(int(cv), n_times) // n_times).split()
