r"""Cells: rows with nearly equal probabilities of an event, which count as one prediction.

The different probabilities of the rows of all devices are sorted, and cut into C cells of about as
many of them.  A kernel of two predictions is taken at the medians m of their cells, so that

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab k_P(m_a, m_b) <G_a, G_b>,    G_a = sum_{i in a} r_i.

This is the form of `landmarks.py`, with other cells.  With at most C different probabilities each
has a cell, and both sides are equal.  The cells depend on predictions only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis, all_of, evenly_spaced


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
    order = jnp.argsort(every)
    increasing = every[order]
    # The rank of each row among different probabilities; that of rows that do not count comes last.
    is_new = jnp.concatenate([jnp.zeros(1, bool), increasing[1:] != increasing[:-1]])
    ranks = jnp.cumsum(is_new, dtype=jnp.int32)
    n_different = jnp.sum(is_new & (increasing < jnp.inf), dtype=jnp.int32) + 1
    # With fewer than C of them each is a cell, and the cells behind are empty.
    n_ranks = jnp.maximum(n_different, n_cells)
    first = evenly_spaced(n_ranks, n_cells, n_cells)
    edges = jnp.append(increasing, jnp.inf)[jnp.searchsorted(ranks, first)]
    cells = jnp.searchsorted(edges, probabilities, side="right").astype(jnp.int32) - 1
    middle = jnp.searchsorted(ranks, first + n_ranks // (2 * n_cells))
    medians = order[jnp.minimum(middle, order.size - 1)].astype(jnp.int32)
    return Cells(jnp.where(counted, cells, n_cells), medians)
