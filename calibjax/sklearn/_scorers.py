"""Scorers: functions of (estimator, X, y) for ``scoring=`` of scikit-learn."""

from typing import Any

import jax
import numpy as np

from calibjax.estimators import skce
from calibjax.hypothesis_tests import calibration_test
from calibjax.kernels import DistanceKernel, TensorProduct, TotalVariation, WhiteKernel
from calibjax.sklearn._classifier import labels_and_forecasts


def skce_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Minus the unbiased squared kernel calibration error of a classifier: larger is better.

    The kernel is the same for all models, exp(-TV(p, q) / 0.5) 1[y = y'], so that they can be
    compared.  A model that says the frequencies of the classes for every row is calibrated: choose
    models by a proper score, such as "neg_log_loss", and look at this beside it.

    Args:
        estimator: a classifier with `predict_proba`, fitted.
        X: features.
        y: classes ``[n]``, n >= 2.

    Returns:
        A number: 0 on average if the classifier is calibrated.

    See also:
        `skce`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import cross_val_score
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import skce_scorer
        >>> X, y = load_iris(return_X_y=True)
        >>> cross_val_score(GaussianNB(), X, y, scoring=skce_scorer, cv=3).shape
        (3,)
    """
    predictions, targets = labels_and_forecasts(estimator, X, y)
    kernel = TensorProduct(DistanceKernel(TotalVariation(), 0.5), WhiteKernel())
    return -float(skce(kernel, predictions, targets))


def calibration_pvalue_scorer(estimator: Any, X: Any, y: Any) -> float:
    """The p-value of `calibration_test`: small if the model is not calibrated on these rows.

    It says whether an error is more than chance on so many rows, and not how large it is.

    Args:
        estimator: a classifier with `predict_proba`, or a `RecalibratedRegressor`, fitted.
        X: features of rows that did not train it.
        y: what was observed, ``[n]``, n >= 2.

    Returns:
        A number from 0.001 to 1; the same arguments give the same one.

    See also:
        `calibration_test`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from calibjax.sklearn import calibration_pvalue_scorer
        >>> X, y = load_iris(return_X_y=True)
        >>> model = GaussianNB().fit(X[::2], y[::2])
        >>> pvalue = calibration_pvalue_scorer(model, X[1::2], y[1::2])
    """
    key = jax.random.key(0)
    if hasattr(estimator, "predict_distribution"):
        predictions, targets = estimator.predict_distribution(X), np.asarray(y, float)
        return float(calibration_test(key, predictions, targets).pvalue)
    return float(calibration_test(key, *labels_and_forecasts(estimator, X, y)).pvalue)
