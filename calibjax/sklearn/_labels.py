"""Classes of scikit-learn as the labels of calibjax."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from calibjax.distributions import Categorical


def places_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The places of labels among sorted classes, ``[n]``.

    Raises:
        ValueError: a label is no class.
    """
    places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    unknown = np.asarray(classes)[places] != y
    if unknown.any():
        got = np.asarray(y)[np.argmax(unknown)]
        raise ValueError(f"y must hold the classes {list(classes)} of the estimator, got {got!r}.")
    return places.astype(np.int32)


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
    return Categorical(jnp.asarray(probs)), places_of(np.asarray(y), estimator.classes_)
