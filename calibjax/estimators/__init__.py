"""Estimators of calibration error."""

from calibjax.estimators._binning import MedianVarianceBinning as MedianVarianceBinning
from calibjax.estimators._binning import UniformBinning as UniformBinning
from calibjax.estimators._ece import ece as ece
from calibjax.estimators._ece import mce as mce
from calibjax.estimators._h_matrix import h_matrix as h_matrix
from calibjax.estimators._inputs import Inputs as Inputs
from calibjax.estimators._inputs import check_inputs as check_inputs
from calibjax.estimators._inputs import check_locations as check_locations
from calibjax.estimators._inputs import check_samples as check_samples
from calibjax.estimators._inputs import count_kept as count_kept
from calibjax.estimators._mmce import mmce as mmce
from calibjax.estimators._random_features import RandomFeatureEstimate as RandomFeatureEstimate
from calibjax.estimators._random_features import random_feature_skce as random_feature_skce
from calibjax.estimators._rows import Rows as Rows
from calibjax.estimators._rows import clean as clean
from calibjax.estimators._rows import clean_samples as clean_samples
from calibjax.estimators._rows import in_dtype as in_dtype
from calibjax.estimators._rows import whole_blocks as whole_blocks
from calibjax.estimators._skce import local_skce as local_skce
from calibjax.estimators._skce import skce as skce
from calibjax.estimators._top_label import one_vs_rest as one_vs_rest
from calibjax.estimators._top_label import top_label as top_label
from calibjax.estimators._ucme import clean_with_locations as clean_with_locations
from calibjax.estimators._ucme import ucme as ucme
from calibjax.estimators._ucme import witness as witness
