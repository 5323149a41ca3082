"""Recalibration of predictions: by a temperature, or by any transform with parameters."""

from calibjax.recalibration._cross_fit import cross_fit
from calibjax.recalibration._decompose_score import ScoreDecomposition, decompose_score
from calibjax.recalibration._fit_recalibrator import fit_recalibrator
from calibjax.recalibration._fit_temperature import (
    fit_temperature,
    fit_temperature_of_data,
    is_end_of_range,
)
from calibjax.recalibration._logistic_calibration import LogisticCalibration, logistic_calibration
from calibjax.recalibration._recalibrator import Recalibrator
from calibjax.recalibration._saved import content_of, load_recalibrator
from calibjax.recalibration._temper import temper
