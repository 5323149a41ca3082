"""The walk over all pairs of rows, tile by tile, in bounded memory."""

from calibjax._pairwise._gradients import tile_values
from calibjax._pairwise._ring import Trees, ring, ring_sum
from calibjax._pairwise._tiles import cut, in_chunks, most_tile_rows, pad, tile_sizes
