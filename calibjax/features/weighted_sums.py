"""Sums over rows of the residuals of many targets of a prediction.

With weights w_a(p), a = 1, …, F, such as whether p is in the cell of a landmark, a test needs of
residuals r the sums

    G_a = sum_i w_a(p_i) r_i

for each of D data sets of targets with the same predictions, and the squares |r_i|^2 for the first
one, the observed targets.  Sums of features of many rows are made in chunks of a few rows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.compile import on_cpu
from calibjax._base.sharding import Axis, all_sum, as_varying
from calibjax._base.struct import PyTree, indexed
from calibjax._data.distribution import Distribution, as_labels
from calibjax._numbers.arithmetic import compensated_add, dot
from calibjax._pairwise.tiles import in_chunks
from calibjax.residuals.base import FiniteResidual
from calibjax.residuals.labels import Indicators


class InCells(NamedTuple):
    """Weights of rows ``[n]`` that are in one cell each: a matrix ``[n, F]`` that is mostly 0.

    Args:
        weights: of the rows, ``[n]``.
        cells: where they are, ``[n]``.
        n_cells: F.
    """

    weights: jax.Array
    cells: jax.Array
    n_cells: int


#: Weights of rows: a matrix ``[n, F]``.
Weights = jax.Array | InCells


def weighted_sums(weights: Weights, values: jax.Array) -> jax.Array:
    """The F weighted sums over rows of values ``[n, P]``, ``[F, P]``."""
    if not isinstance(weights, InCells):
        return dot(weights.T, values)
    zeros = jnp.zeros((weights.n_cells, values.shape[1]), values.dtype)
    weighted = weights.weights[:, None] * values
    return zeros.at[weights.cells].add(weighted, mode="drop")


def moments_of(weights: Weights, squares: jax.Array) -> jax.Array:
    """sum_i w_ia^2 s_i of squares ``[n]``, ``[F]``."""
    if not isinstance(weights, InCells):
        return dot(squares, jnp.square(weights))
    of_rows = weights._replace(weights=jnp.square(weights.weights))
    return weighted_sums(of_rows, squares[:, None])[:, 0]


class ResidualSums(NamedTuple):
    """G ``[F, D, M]``, and the squares for the first data set, ``[n]``."""

    sums: jax.Array
    squares: jax.Array


# Up to this number of classes a product of matrices with indicators is faster than sums over the
# rows of each class.
_MANY_CLASSES = 32


def residual_sums(
    residual: FiniteResidual,
    weights: Sequence[Weights],
    predictions: Distribution,
    targets: PyTree,
    others: jax.Array,
) -> list[ResidualSums]:
    """The sums and squares of ``residual.values(predictions, targets, others)``.

    One for each of the weights ``[n, F]``, for all of which the values are computed once.
    """
    if isinstance(residual, Indicators):
        probabilities = as_labels(predictions).label_probabilities()
        if probabilities.shape[1] > _MANY_CLASSES or isinstance(weights[0], InCells):
            return [_sums_of_many_classes(w, probabilities, targets) for w in weights]
    values = residual.values(predictions, targets, others)
    return [sums_of_residuals(w, values) for w in weights]


def sums_of_residuals(weights: Weights, residuals: jax.Array) -> ResidualSums:
    """The sums of residuals ``[n, D, M]``."""
    n, *shape = residuals.shape
    sums = weighted_sums(weights, residuals.reshape(n, -1)).reshape(-1, *shape)
    return ResidualSums(sums, jnp.sum(jnp.square(residuals[:, 0]), axis=1))


def numbers_of_row(residual: FiniteResidual, n_sets: int, size: int, by_class: bool) -> int:
    """How many numbers of a row are in memory for sums of `size` numbers in each data set.

    `by_class` says whether `residual_sums` makes them, without residuals of many classes.
    """
    by_class = by_class and isinstance(residual, Indicators) and size > _MANY_CLASSES
    return n_sets if by_class else n_sets * size


def _sums_of_many_classes(
    weights: Weights, probabilities: jax.Array, targets: jax.Array
) -> ResidualSums:
    """The sums of e_y - p for labels ``[n, D]`` and p ``[n, m]``, without any indicators."""
    # |e_y - p|^2 = 1 - 2 p_y + |p|^2.
    of_first = jnp.take_along_axis(probabilities, targets[:, :1], axis=1)[:, 0]
    norms = jnp.sum(jnp.square(probabilities), axis=1)
    expected, size = weighted_sums(weights, probabilities), probabilities.shape[1]

    def of_set(labels: jax.Array) -> jax.Array:
        if isinstance(weights, InCells):
            counted = (-expected).at[weights.cells, labels]
            return counted.add(weights.weights, mode="drop")
        counts = jnp.zeros((size, weights.shape[1]), weights.dtype).at[labels].add(weights)
        return counts.T - expected

    # On a CPU one data set at a time: its sums stay in a cache, those of all do not.
    sums = lax.map(of_set, targets.T) if on_cpu() else jax.vmap(of_set)(targets.T)
    return ResidualSums(sums.transpose(1, 0, 2), 1 - 2 * of_first + norms)


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
