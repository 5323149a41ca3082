"""Random features: h as an average over features of products of two numbers, one per sample."""

from calibjax.features._cells import choose_cells
from calibjax.features._columns import ColumnFeatures, ColumnKernels, column_features, ranked
from calibjax.features._landmarks import Landmarks, choose_landmarks, landmarks_with_base
from calibjax.features._random_features import Features, draw_features, one_feature
from calibjax.features._residuals import (
    Arguments,
    DrawnPIT,
    Feature,
    Hidden,
    numbers_of_row,
    residual_feature,
    residual_sums,
    sums_of_residuals,
)
from calibjax.features._sums_in_chunks import map_rows, sum_rows
