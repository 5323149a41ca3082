"""The matrix H of h over all pairs of samples, as an operator that need not hold the matrix."""

from calibjax.operators._blocks import BlockH, block_h, whole_blocks
from calibjax.operators._dense import DenseH
from calibjax.operators._low_rank import low_rank_h
from calibjax.operators._operator import DiscrepancyMatrix
from calibjax.operators._related import related_sums
from calibjax.operators._tiled import TiledH, in_tiles, tiled_h
