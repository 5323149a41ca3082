"""What regressors of scikit-learn predict: quantiles, a mean and its deviation, or a number."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from calibjax.sklearn._meta import fitted_clone

Kind = Literal["quantiles", "deviation", "number"]


def kind_of(estimator: Any) -> tuple[Kind, str | None]:
    """What an estimator predicts, and of quantile regressors the parameter that is the level."""
    parameters = estimator.get_params(deep=False)
    loss = parameters.get("loss", "quantile")
    if loss == "quantile" and "quantile" in parameters:
        return "quantiles", "quantile"
    if "loss" in parameters and loss == "quantile" and "alpha" in parameters:
        return "quantiles", "alpha"
    inner = getattr(estimator, "estimator", estimator)  # of FrozenEstimator
    if "return_std" in inspect.signature(inner.predict).parameters:
        return "deviation", None
    return "number", None


def fitted(
    estimator: Any, levels: Sequence[float], X: Any, y: np.ndarray, weights: np.ndarray | None
) -> list[Any]:
    """A fitted copy of the estimator, or one for each level."""
    _, parameter = kind_of(estimator)
    if parameter is None:
        return [fitted_clone(estimator, X, y, weights)]
    copies = [clone(estimator).set_params(**{parameter: level}) for level in levels]
    return [fitted_clone(copy, X, y, weights) for copy in copies]


def numbers_of(estimators: Sequence[Any], kind: Kind, X: Any) -> np.ndarray:
    """What they predict, ``[n, K]``: quantiles, a mean and a deviation, or one number."""
    if kind == "deviation":
        return np.stack(estimators[0].predict(X, return_std=True), axis=1).astype(float)
    return np.stack([np.asarray(x.predict(X), float) for x in estimators], axis=1)
