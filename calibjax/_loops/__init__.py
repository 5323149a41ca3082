"""The same numbers, made in the loops that suit a platform."""

from calibjax._loops._branches import anywhere
from calibjax._loops._coordinate_sums import (
    CoordinateSums,
    Elementwise,
    distance,
    row_at,
    row_by_row,
    slope_of_distance,
    slope_of_square,
    slope_of_square_beyond_rounding,
    square,
    square_beyond_rounding,
    sum_of_squares_near_1,
    sum_over_coordinates,
)
from calibjax._loops._fusion import in_one_loop, is_of_numbers, materialised, with_fusion_hints
