"""The matrix H of h over all pairs of samples, as an operator that need not hold the matrix."""

from calibjax.operators._blocks import BlockH as BlockH
from calibjax.operators._blocks import block_h as block_h
from calibjax.operators._blocks import whole_blocks as whole_blocks
from calibjax.operators._dense import DenseH as DenseH
from calibjax.operators._low_rank import low_rank_h as low_rank_h
from calibjax.operators._operator import DiscrepancyMatrix as DiscrepancyMatrix
from calibjax.operators._related import related_sums as related_sums
from calibjax.operators._tiled import TiledH as TiledH
from calibjax.operators._tiled import in_tiles as in_tiles
from calibjax.operators._tiled import tiled_h as tiled_h
