"""Recalibrated models, scorers and displays for scikit-learn.

`RecalibratedClassifier` and `RecalibratedRegressor` wrap an estimator, `skce_scorer` and
`calibration_pvalue_scorer` are for ``scoring=``, and `ReliabilityDisplay` is a picture.
"""

from importlib.util import find_spec

if find_spec("sklearn") is None:
    raise ModuleNotFoundError(
        "calibjax.sklearn needs scikit-learn: pip install 'calibjax[sklearn]'"
    )

from calibjax.sklearn._estimators import RecalibratedClassifier as RecalibratedClassifier
from calibjax.sklearn._estimators import RecalibratedRegressor as RecalibratedRegressor
from calibjax.sklearn._metrics import ReliabilityDisplay as ReliabilityDisplay
from calibjax.sklearn._metrics import calibration_pvalue_scorer as calibration_pvalue_scorer
from calibjax.sklearn._metrics import skce_scorer as skce_scorer
