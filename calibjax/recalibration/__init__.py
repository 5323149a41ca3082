"""Recalibration of predictions by a temperature and other fitted maps."""

from calibjax.recalibration._fit_recalibrator import fit_recalibrator
from calibjax.recalibration._logistic_calibration import LogisticCalibration, logistic_calibration
from calibjax.recalibration._recalibrator import Recalibrator, content_of, load_recalibrator
from calibjax.recalibration._temperature import apply_temperature, fit_temperature, is_end_of_range
from calibjax.recalibration.cross_fitting import ScoreDecomposition, cross_fit, decompose_score

__all__ = [
    "LogisticCalibration", "Recalibrator", "ScoreDecomposition", "cross_fit", "decompose_score",
    "fit_recalibrator", "fit_temperature", "load_recalibrator", "logistic_calibration",
    "apply_temperature",
]  # fmt: skip
__dir__ = __all__.copy
