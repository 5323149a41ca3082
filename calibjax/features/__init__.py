"""Random features: h as an average over features of products of two numbers, one per sample."""

from calibjax.features._column_kernels import ColumnKernels as ColumnKernels
from calibjax.features._columns import ColumnFeatures as ColumnFeatures
from calibjax.features._columns import column_features as column_features
from calibjax.features._columns import ranked as ranked
from calibjax.features._landmarks import Landmarks as Landmarks
from calibjax.features._landmarks import choose_landmarks as choose_landmarks
from calibjax.features._landmarks import landmarks_with_base as landmarks_with_base
from calibjax.features._random_features import Features as Features
from calibjax.features._random_features import draw_features as draw_features
from calibjax.features._random_features import one_feature as one_feature
from calibjax.features._residuals import Arguments as Arguments
from calibjax.features._residuals import DrawnPlaces as DrawnPlaces
from calibjax.features._residuals import Feature as Feature
from calibjax.features._residuals import Hidden as Hidden
from calibjax.features._residuals import numbers_of_row as numbers_of_row
from calibjax.features._residuals import residual_sums as residual_sums
from calibjax.features._residuals import sums_of_residuals as sums_of_residuals
from calibjax.features._sums import map_rows as map_rows
from calibjax.features._sums import sum_rows as sum_rows
from calibjax.features._target_features import residual_feature as residual_feature
