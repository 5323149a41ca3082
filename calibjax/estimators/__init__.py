"""Estimators of calibration error."""

from calibjax.estimators._binning import MedianVarianceBinning as MedianVarianceBinning
from calibjax.estimators._binning import UniformBinning as UniformBinning
from calibjax.estimators._binning import bin_means as bin_means
from calibjax.estimators._calibration_bins import CalibrationBins as CalibrationBins
from calibjax.estimators._calibration_bins import calibration_bins as calibration_bins
from calibjax.estimators._d_calibration import DCalibration as DCalibration
from calibjax.estimators._d_calibration import d_calibration as d_calibration
from calibjax.estimators._ece import ece as ece
from calibjax.estimators._ece import mce as mce
from calibjax.estimators._h_matrix import h_matrix as h_matrix
from calibjax.estimators._integrated_calibration_index import (
    integrated_calibration_index as integrated_calibration_index,
)
from calibjax.estimators._mmce import mmce as mmce
from calibjax.estimators._product_limit import ProductLimit as ProductLimit
from calibjax.estimators._product_limit import check_lifetimes as check_lifetimes
from calibjax.estimators._product_limit import clean_lifetimes as clean_lifetimes
from calibjax.estimators._product_limit import numbers_below as numbers_below
from calibjax.estimators._product_limit import predicted_risks as predicted_risks
from calibjax.estimators._product_limit import product_limit as product_limit
from calibjax.estimators._random_features import RandomFeatureEstimate as RandomFeatureEstimate
from calibjax.estimators._random_features import random_feature_skce as random_feature_skce
from calibjax.estimators._residual_form import Form as Form
from calibjax.estimators._residual_form import has_residual_form as has_residual_form
from calibjax.estimators._residual_form import residual_form as residual_form
from calibjax.estimators._skce import estimate_skce as estimate_skce
from calibjax.estimators._skce import skce as skce
from calibjax.estimators._top_label import check_binary as check_binary
from calibjax.estimators._top_label import one_vs_rest as one_vs_rest
from calibjax.estimators._top_label import one_vs_rest_of_data as one_vs_rest_of_data
from calibjax.estimators._top_label import top_label as top_label
from calibjax.estimators._top_label import top_label_of_data as top_label_of_data
from calibjax.estimators._ucme import h_and_locations as h_and_locations
from calibjax.estimators._ucme import ucme as ucme
from calibjax.estimators._ucme import witness as witness
