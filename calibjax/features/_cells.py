r"""Cells: rows with nearly equal probabilities of an event, which count as one prediction.

The rows of all devices are sorted by the probability and cut into C cells of about n / C rows;
equal probabilities are in one cell.  A kernel of two predictions is taken at the medians m of their
cells, so that

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab k_P(m_a, m_b) <G_a, G_b>,    G_a = sum_{i in a} r_i.

This is the form of `_landmarks.py` with unit vectors for coordinates, with which nothing needs to
be multiplied.  The cells depend on predictions only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis, all_of, all_sum, evenly_spaced


class Cells(NamedTuple):
    """The cells of the rows of this device.

    Args:
        of_rows: the cell of each row, ``[n]``; rows that do not count are in the cell C.
        medians: the index of a row in the middle of each cell among the rows of all devices,
            ``[C]``.
    """

    of_rows: jax.Array
    medians: jax.Array


def choose_cells(probabilities: jax.Array, counted: jax.Array, n_cells: int, axis: Axis) -> Cells:
    """The cells of rows with these probabilities of an event, of which some count, ``[n]``."""
    every = all_of(jnp.where(counted, probabilities, jnp.inf), axis).ravel()
    n_rows = all_sum(jnp.sum(counted, dtype=jnp.int32), axis)
    order, ranks = jnp.argsort(every), evenly_spaced(n_rows, n_cells, n_cells)
    # Of equal edges the last one counts, so that equal probabilities are in one cell.
    edges = every[order[ranks]]
    cells = jnp.searchsorted(edges, probabilities, side="right").astype(jnp.int32) - 1
    of_rows = jnp.where(counted, jnp.maximum(cells, 0), n_cells)
    return Cells(of_rows, order[ranks + n_rows // (2 * n_cells)].astype(jnp.int32))
