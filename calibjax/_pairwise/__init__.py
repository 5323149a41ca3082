"""The walk over all pairs of rows, tile by tile, in bounded memory."""

from calibjax._pairwise._gradients import tile_values as tile_values
from calibjax._pairwise._ring import Trees as Trees
from calibjax._pairwise._ring import ring as ring
from calibjax._pairwise._ring import ring_sum as ring_sum
from calibjax._pairwise._tiles import Tile as Tile
from calibjax._pairwise._tiles import cut as cut
from calibjax._pairwise._tiles import in_chunks as in_chunks
from calibjax._pairwise._tiles import most_tile_rows as most_tile_rows
from calibjax._pairwise._tiles import pad as pad
from calibjax._pairwise._tiles import tile_sizes as tile_sizes
