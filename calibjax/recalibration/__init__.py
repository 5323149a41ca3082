"""Recalibration of predictions: by a temperature, or by any transform with parameters."""

from calibjax.recalibration._cross_fit import cross_fit as cross_fit
from calibjax.recalibration._decompose_score import ScoreDecomposition as ScoreDecomposition
from calibjax.recalibration._decompose_score import decompose_score as decompose_score
from calibjax.recalibration._fit_recalibration import fit_recalibration as fit_recalibration
from calibjax.recalibration._fit_recalibration import (
    fit_recalibration_of_data as fit_recalibration_of_data,
)
from calibjax.recalibration._fit_recalibrator import fit_recalibrator as fit_recalibrator
from calibjax.recalibration._fit_temperature import fit_temperature as fit_temperature
from calibjax.recalibration._fit_temperature import (
    fit_temperature_of_data as fit_temperature_of_data,
)
from calibjax.recalibration._fit_temperature import is_end_of_range as is_end_of_range
from calibjax.recalibration._logistic_calibration import LogisticCalibration as LogisticCalibration
from calibjax.recalibration._logistic_calibration import (
    logistic_calibration as logistic_calibration,
)
from calibjax.recalibration._recalibrator import Recalibrator as Recalibrator
from calibjax.recalibration._saved import content_of as content_of
from calibjax.recalibration._saved import load_recalibrator as load_recalibrator
from calibjax.recalibration._temper import temper as temper
from calibjax.recalibration._transforms import affine_scaling as affine_scaling
from calibjax.recalibration._transforms import vector_scaling as vector_scaling
