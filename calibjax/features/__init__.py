"""Random features: h as an average over features of products of two numbers, one per sample."""

from calibjax.features._cells import choose_cells
from calibjax.features._columns import ColumnFeatures, ColumnKernels, column_features, ranked
from calibjax.features._landmarks import Landmarks, choose_landmarks
from calibjax.features._random_features import Features, draw_features, one_feature
from calibjax.features._residuals import (
    Arguments,
    CentredFeature,
    DrawnPIT,
    Feature,
    Hidden,
    InCells,
    moments_of,
    numbers_of_row,
    residual_feature,
    residual_sums,
    sums_of_residuals,
    weighted_sums,
)
from calibjax.features._sums_in_chunks import map_rows, sum_rows
