"""The walk over all pairs of rows, tile by tile, in bounded memory."""
