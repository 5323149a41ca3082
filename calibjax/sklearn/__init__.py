"""Recalibrated models, scorers and displays for scikit-learn.

`RecalibratedClassifier` and `RecalibratedRegressor` wrap an estimator, `skce_scorer` and
`calibration_pvalue_scorer` are for ``scoring=``, and `ReliabilityDisplay` is a picture.
"""

from importlib.util import find_spec

if find_spec("sklearn") is None:
    raise ModuleNotFoundError("scikit-learn is missing: pip install 'calibjax[sklearn]'")

from calibjax.sklearn._estimators import RecalibratedClassifier, RecalibratedRegressor
from calibjax.sklearn._metrics import ReliabilityDisplay, calibration_pvalue_scorer, skce_scorer

__all__ = [
    "RecalibratedClassifier", "RecalibratedRegressor", "ReliabilityDisplay",
    "calibration_pvalue_scorer", "skce_scorer",
]  # fmt: skip
__dir__ = __all__.copy
