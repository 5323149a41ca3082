r"""Landmarks: some of the predictions, which stand for all in kernels on predictions.

Each prediction p is in the cell of the landmark l(p) that is nearest to it, so that

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab k_P(l_a, l_b) <G_a, G_b>,    G_a = sum_{i in a} r_i:

sums over all pairs of rows become sums over rows and a form on F numbers.  One distance has one set
of cells, for kernels of all lengthscales.  If there are at most F rows, all are landmarks, each row
is in its own cell, and both sides are equal.

The right side is a positive definite kernel itself if k_P is one.  It depends on predictions only.

**Cells of events** are made otherwise.  The different probabilities of an event, of the rows of all
devices, are sorted, and cut into C cells of about as many of them, whose medians stand for l.  With
at most C different probabilities each has a cell, and both sides are equal.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_of, evenly_spaced, rows_at
from calibjax._base.struct import PyTree, struct
from calibjax.features.weighted_sums import InCells, map_rows
from calibjax.kernels import DistanceKernel
from calibjax.kernels.base import KernelLike, pairwise

T = TypeVar("T")


@struct
class Landmarks:
    """F landmarks of a batch of predictions.

    Args:
        points: the landmarks, F predictions or what stands for them in kernels.
        n_rows: the number of rows that they stand for.
        kernel: one of the kernels on predictions, which says what is near.
    """

    points: PyTree
    n_rows: jax.Array
    kernel: KernelLike

    @property
    def n_points(self) -> int:
        """F."""
        return jax.tree.leaves(self.points)[0].shape[0]

    def cells(self, predictions: PyTree, rows: jax.Array, are_more: bool) -> jax.Array:
        """The landmark that is nearest to each row, or, if all rows are landmarks, is it, ``[n]``.

        `rows` are the numbers of the rows, of which there may be more than landmarks if `are_more`.
        One that a kernel without a distance takes for like none of the landmarks has the number F.
        """
        kernel, n_rows = self.kernel, jnp.maximum(self.n_rows, 1)
        first = lax.div(rows * self.n_points + n_rows - 1, n_rows)
        if not are_more:
            return first

        def nearest(predictions: PyTree) -> jax.Array:
            if isinstance(kernel, DistanceKernel):
                distances = pairwise(kernel.distance, predictions, self.points)
                return jnp.argmin(distances, axis=1).astype(jnp.int32)
            values = pairwise(kernel, predictions, self.points)
            found = jnp.argmax(values, axis=1).astype(jnp.int32)
            return jnp.where(jnp.max(values, axis=1) > 0, found, self.n_points)

        of_rows = map_rows(nearest, predictions, rows, self.n_points)
        return lax.select(self.n_rows <= self.n_points, first, of_rows)

    def weighted(self, weights: jax.Array, cells: jax.Array) -> InCells:
        """The weights of rows that are in the cells of these landmarks."""
        return InCells(weights, cells, self.n_points)

    def matrix(self, kernel: KernelLike) -> jax.Array:
        """A kernel on predictions at the landmarks, ``[F, F]``."""
        return pairwise(kernel, self.points, self.points)


def choose_landmarks(
    predictions: T, n_kept: jax.Array | int, n_rows: jax.Array, size: int, axis: Axis
) -> T:
    """`size` predictions, evenly spaced among the rows of all devices.

    The first `n_kept` rows of this device count, and `n_rows` on all devices.
    """
    return rows_at(predictions, n_kept, evenly_spaced(n_rows, size, size), axis)


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
