"""The same numbers, made in the loops that suit a platform."""

from calibjax._loops._coordinates import distance as distance
from calibjax._loops._coordinates import slope_of_distance as slope_of_distance
from calibjax._loops._coordinates import slope_of_square as slope_of_square
from calibjax._loops._coordinates import (
    slope_of_square_beyond_rounding as slope_of_square_beyond_rounding,
)
from calibjax._loops._coordinates import square as square
from calibjax._loops._coordinates import square_beyond_rounding as square_beyond_rounding
from calibjax._loops._coordinates import sum_over_coordinates as sum_over_coordinates
from calibjax._loops._fusion import in_one_loop as in_one_loop
from calibjax._loops._fusion import is_of_numbers as is_of_numbers
from calibjax._loops._fusion import materialised as materialised
from calibjax._loops._fusion import with_fusion_hints as with_fusion_hints
from calibjax._loops._row_by_row import row_by_row as row_by_row
