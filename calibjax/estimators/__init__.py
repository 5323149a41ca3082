"""Estimators of calibration error."""

from calibjax.estimators._ece import CalibrationBins, calibration_bins, d_calibration, ece, mce
from calibjax.estimators._skce import (
    RandomFeatureEstimate,
    contributions,
    h_and_locations,
    h_matrix,
    random_feature_skce,
    skce,
    ucme,
    witness,
)
from calibjax.estimators._smooth_ece import smooth_ece
from calibjax.estimators.binning import MedianVarianceBinning, UniformBinning
from calibjax.estimators.labels import mmce, one_vs_rest, top_label

__all__ = [
    "CalibrationBins", "MedianVarianceBinning", "RandomFeatureEstimate", "UniformBinning",
    "calibration_bins", "contributions", "d_calibration", "ece", "h_matrix", "mce", "mmce",
    "one_vs_rest", "random_feature_skce", "skce", "smooth_ece", "top_label", "ucme", "witness",
]  # fmt: skip
__dir__ = __all__.copy
