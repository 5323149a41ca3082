"""Estimators of calibration error."""

from calibjax.estimators._binning import MedianVarianceBinning, UniformBinning, bin_means
from calibjax.estimators._calibration_bins import CalibrationBins, calibration_bins
from calibjax.estimators._d_calibration import DCalibration, d_calibration
from calibjax.estimators._ece import ece, mce
from calibjax.estimators._h_matrix import contributions, h_matrix
from calibjax.estimators._mmce import mmce
from calibjax.estimators._random_features import RandomFeatureEstimate, random_feature_skce
from calibjax.estimators._residual_forms import Form, residual_form
from calibjax.estimators._skce import skce
from calibjax.estimators._smooth_ece import smooth_ece
from calibjax.estimators._top_label import binary_as_data, one_vs_rest, top_label
from calibjax.estimators._ucme import h_and_locations, ucme, witness
