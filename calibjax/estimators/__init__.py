"""Estimators of calibration error."""

from calibjax.estimators._binning import MedianVarianceBinning, UniformBinning, bin_means
from calibjax.estimators._calibration_bins import CalibrationBins, calibration_bins
from calibjax.estimators._d_calibration import DCalibration, d_calibration
from calibjax.estimators._ece import ece, mce
from calibjax.estimators._h_matrix import h_matrix
from calibjax.estimators._integrated_calibration_index import integrated_calibration_index
from calibjax.estimators._mmce import mmce
from calibjax.estimators._product_limit import (
    ProductLimit,
    check_lifetimes,
    clean_lifetimes,
    numbers_below,
    predicted_risks,
    product_limit,
)
from calibjax.estimators._random_features import RandomFeatureEstimate, random_feature_skce
from calibjax.estimators._residual_form import Form, has_residual_form, residual_form
from calibjax.estimators._skce import estimate_skce, skce
from calibjax.estimators._top_label import (
    check_binary,
    one_vs_rest,
    one_vs_rest_of_data,
    top_label,
    top_label_of_data,
)
from calibjax.estimators._ucme import h_and_locations, ucme, witness
