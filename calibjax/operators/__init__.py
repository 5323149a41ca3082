"""The matrix H of h over all pairs of samples, as an operator that need not hold the matrix."""

from calibjax.operators._blocks import BlockH, block_h
from calibjax.operators._gram_matrix import (
    DiscrepancyMatrix,
    TiledH,
    in_tiles,
    related_sums,
    tiled_h,
)
from calibjax.operators._low_rank import low_rank_h
