r"""Sums over rows of the residuals of many targets of a prediction.

With weights w_a(p), a = 1, …, F, such as whether p is in the cell of a landmark, a test needs of
residuals r the sums

    G_a = sum_i w_a(p_i) r_i

for each of D data sets of targets with the same predictions, and the squares |r_i|^2 for the first
one, the observed targets.  Sums of features of many rows are made in chunks of a few rows.

**Landmarks** are some of the predictions, which stand for all in kernels on predictions.  Each
prediction p is in the cell of the landmark l(p) that is nearest to it, so that

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab k_P(l_a, l_b) <G_a, G_b>,    G_a = sum_{i in a} r_i:

sums over all pairs of rows become sums over rows and a form on F numbers.  One distance has one set
of cells, for kernels of all lengthscales.  If there are at most F rows, all are landmarks, each row
is in its own cell, and both sides are equal.

The right side is a positive definite kernel itself if k_P is one.  It depends on predictions only.

**Cells of events** are made otherwise.  The different probabilities of an event, of the rows of all
devices, are sorted, and cut into C cells of about as many of them, whose medians stand for l.  With
at most C different probabilities each has a cell, and both sides are equal.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import Axis, all_of, all_sum, as_varying, evenly_spaced, rows_at
from calibjax._base.struct import PyTree, indexed, struct
from calibjax._numbers.arithmetic import compensated_add, dot
from calibjax._pairwise.tiles import in_chunks
from calibjax.kernels import DistanceKernel
from calibjax.kernels.base import KernelLike, pairwise


class InCells(NamedTuple):
    """Weights of rows that are in one cell each: a matrix ``[n, F]`` that is mostly 0.

    Args:
        weights: of the rows, ``[n]``.
        cells: where they are, ``[n]``; a row in the cell F counts nowhere.
        n_cells: F.
    """

    weights: jax.Array
    cells: jax.Array
    n_cells: int


#: Weights of rows: a matrix ``[n, F]``.
Weights = jax.Array | InCells


def weighted_sums(
    weights: Sequence[Weights], values: jax.Array, squares: jax.Array | None = None
) -> jax.Array:
    """The sums over rows of w v, and behind them those of w^2 s, ``[K, F, P + S]``.

    Args:
        weights: K matrices, or K times the same weights of rows that are in F cells.
        values: v, ``[n, P]``.
        squares: s, ``[n, S]``, by default none.
    """
    squares = values[:, :0] if squares is None else squares
    cells = [x for x in weights if isinstance(x, InCells)]
    matrices = [x for x in weights if not isinstance(x, InCells)]
    if matrices:
        both = [(dot(w.T, values), dot(jnp.square(w).T, squares)) for w in matrices]
        return jnp.stack([jnp.concatenate(sums, axis=1) for sums in both])
    w = cells[0].weights[:, None]
    rows = jnp.concatenate([w * values, jnp.square(w) * squares], axis=1)
    # One loop over rows adds each of them to its cell of all weights.
    zeros = jnp.zeros((len(cells), cells[0].n_cells + 1, rows.shape[1]), rows.dtype)
    numbers = jnp.arange(len(cells), dtype=jnp.int32)[None]
    place = zeros.at[numbers, jnp.stack([x.cells for x in cells], axis=1)]
    sums = place.add(rows[:, None], mode="promise_in_bounds", wrap_negative_indices=False)
    return sums[:, :-1]


#: Up to this number of classes a product of matrices with indicators is faster than sums over the
# rows of each class.
MANY_CLASSES = 32


def sums_of_classes(
    weights: Weights, probabilities: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sums of e_y - p, ``[F, D, m]``, without any indicators, and the squares, ``[F]``.

    The squares are those of the first of the labels ``[n, D]``; p is ``[n, m]``.
    """
    # |e_y - p|^2 = 1 - 2 p_y + |p|^2.
    of_first = jnp.take_along_axis(probabilities, targets[:, :1], axis=1)
    squares = 1 - 2 * of_first + jnp.sum(jnp.square(probabilities), axis=1, keepdims=True)
    (both,), size = weighted_sums([weights], probabilities, squares), probabilities.shape[1]
    expected, squares = both[:, :-1], both[:, -1]

    def of_set(labels: jax.Array) -> jax.Array:
        if isinstance(weights, InCells):
            return (-expected).at[weights.cells, labels].add(weights.weights, mode="drop")
        counts = jnp.zeros((size, weights.shape[1]), weights.dtype).at[labels].add(weights)
        return counts.T - expected

    # On a CPU one data set at a time: its sums stay in a cache, those of all do not.
    sums = lax.map(of_set, targets.T) if on_cpu() else jax.vmap(of_set)(targets.T)
    return sums.transpose(1, 0, 2), squares


T = TypeVar("T")

# The number of rows times features in one chunk, which fit into a cache.
_NUMBERS_PER_CHUNK = 2**17


def sum_rows(
    function: Callable[[T, jax.Array], list[jax.Array]],
    samples: T,
    weights: jax.Array,
    n_features: int,
    axis: Axis,
) -> list[jax.Array]:
    """The sum of ``function(samples, weights)`` over chunks of the rows of all devices.

    `function` returns sums over the rows that it is given.  Memory O(n + n_features), also for the
    derivative, which evaluates each chunk again.
    """
    chunks = in_chunks(samples, weights, _NUMBERS_PER_CHUNK // n_features)
    sum_chunk = jax.checkpoint(function)

    def step(
        totals: list[tuple[jax.Array, jax.Array]], chunk: tuple[T, jax.Array]
    ) -> tuple[list[tuple[jax.Array, jax.Array]], None]:
        added = zip(totals, sum_chunk(*chunk), strict=True)
        return [compensated_add(total, x) for total, x in added], None

    shapes = jax.eval_shape(function, *indexed(chunks, 0))
    zeros = as_varying([(jnp.zeros(x.shape, x.dtype),) * 2 for x in shapes], chunks)
    return all_sum([high + low for high, low in lax.scan(step, zeros, chunks)[0]], axis)


def map_rows(
    function: Callable[[T], jax.Array], samples: T, weights: jax.Array, n_features: int
) -> jax.Array:
    """What ``function(samples)`` gives for each row, ``[n, …]``, by chunks of rows."""
    chunks = in_chunks(samples, weights, _NUMBERS_PER_CHUNK // n_features)
    values = lax.map(lambda chunk: function(chunk[0]), chunks)
    return values.reshape(-1, *values.shape[2:])[: weights.shape[0]]


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
    def n_weights(self) -> int:
        """F."""
        return jax.tree.leaves(self.points)[0].shape[0]

    def cells(self, predictions: PyTree, rows: jax.Array, are_more: bool) -> jax.Array:
        """The landmark that is nearest to each row, or, if all rows are landmarks, is it, ``[n]``.

        `rows` are the numbers of the rows, of which there may be more than landmarks if `are_more`.
        One that a kernel without a distance takes for like none of the landmarks has the number F.
        """
        kernel, n_rows = self.kernel, jnp.maximum(self.n_rows, 1)
        first = lax.div(rows * self.n_weights + n_rows - 1, n_rows)
        if not are_more:
            return first

        def nearest(predictions: PyTree) -> jax.Array:
            if isinstance(kernel, DistanceKernel):
                distances = pairwise(kernel.distance, predictions, self.points)
                return jnp.argmin(distances, axis=1).astype(jnp.int32)
            values = pairwise(kernel, predictions, self.points)
            found = jnp.argmax(values, axis=1).astype(jnp.int32)
            return jnp.where(jnp.max(values, axis=1) > 0, found, self.n_weights)

        of_rows = map_rows(nearest, predictions, rows, self.n_weights)
        return lax.select(self.n_rows <= self.n_weights, first, of_rows)

    def weighted(self, weights: jax.Array, cells: jax.Array) -> InCells:
        """The weights of rows that are in the cells of these landmarks."""
        return InCells(weights, cells, self.n_weights)

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
