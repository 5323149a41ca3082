"""The engine: everything that is summed over pairs of rows, tile by tile, in bounded memory."""

from calibjax._pairwise._column_sums import column_sums as column_sums
from calibjax._pairwise._moments import block_sums_and_squares as block_sums_and_squares
from calibjax._pairwise._moments import row_sums_and_squares as row_sums_and_squares
from calibjax._pairwise._pair_sums import all_pairs_sum as all_pairs_sum
from calibjax._pairwise._pair_sums import block_sums as block_sums
from calibjax._pairwise._quadratic_forms import quadratic_forms as quadratic_forms
from calibjax._pairwise._tiles import cut as cut
from calibjax._pairwise._tiles import pad as pad
from calibjax._pairwise._tiles import tile_sizes as tile_sizes
