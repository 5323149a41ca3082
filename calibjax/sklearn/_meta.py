"""What wrapped estimators have in common."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter


class Wrapper(MetaEstimatorMixin, BaseEstimator):
    """An estimator around another one, which reads the features itself."""

    def _base(self) -> Any:
        """The estimator, or what takes its place."""
        raise NotImplementedError

    def _keep_features(self, fitted: Any) -> None:
        """The number and the names of the features are those of the fitted estimator."""
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags


def fitted_clone(estimator: Any, X: Any, y: np.ndarray, weights: np.ndarray | None) -> Any:
    """A copy of an estimator, fitted; weights are given to those that take them."""
    return clone(estimator).fit(X, y, **fit_parameters(estimator, weights))


def fit_parameters(estimator: Any, weights: np.ndarray | None) -> dict[str, np.ndarray]:
    """The arguments of `fit` beside features and targets."""
    if weights is None or not has_fit_parameter(estimator, "sample_weight"):
        return {}
    return {"sample_weight": weights}
