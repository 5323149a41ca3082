r"""The SKCE of several kernels, for the observed targets and for data sets under H0.

With the matrix K of k_P at F landmarks, and residuals r_i of the features of the targets, n^2 times
the biased SKCE is

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab K_ab <G_a, G_b>,    G_a = sum_{i in a} r_i,

with sums over the rows in the cell of each landmark, and equality up to as many rows as landmarks.
For more events the landmarks are the medians of cells of near probabilities, and for others each
row is in the cell of the nearest one (`features/weighted_sums.py`).  All D data sets of targets
share cells and K, and all kernels share the residuals: the time is O(n M D + F^2 M D), for features
of M numbers, and the memory is O(F M D) for some data sets at a time.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax._base.sharding import Axis, axis_size, global_offset, rows_at
from calibjax._base.struct import indexed
from calibjax._data.capabilities import KnownLevels, has_atoms, pit_partition
from calibjax._data.data import Rows, in_dtype, kept_first, with_known_weights
from calibjax._data.distribution import as_labels
from calibjax._data.row_columns import sampled
from calibjax.expectations.defaults import prediction_coordinates
from calibjax.features.columns import column_features, ranked
from calibjax.features.weighted_sums import Landmarks, choose_cells, choose_landmarks
from calibjax.hypothesis_tests._kernel_sums import CellSums, KernelSums, Weighting
from calibjax.hypothesis_tests._kernel_terms import KernelTerms
from calibjax.kernels.base import KernelLike
from calibjax.kernels.predictions import embedded_rows
from calibjax.nulls.engine import run
from calibjax.nulls.event_sums import EventSums
from calibjax.nulls.readable_sums import sums_over_rows, tested_squares
from calibjax.nulls.sampler import NullSampler
from calibjax.residuals.base import FiniteResidual
from calibjax.residuals.readable import Readable


class RedrawnSKCE(NamedTuple):
    """What a test of kernels takes of data sets under H0, the observed targets first.

    Args:
        values: the sums over all pairs for each kernel, ``[K, 1 + R]``.
        diagonals: sum_i k_P(p_i, p_i) |r_i|^2 for the observed targets, ``[K]``; without them the
            first sum would be n (n-1) times the unbiased SKCE.
        squares: those of readable statistics of all rows, ``[J', 1 + R]``, or None.
        n_units: how many units depend on each other only within themselves, or None.
    """

    values: jax.Array
    diagonals: jax.Array
    squares: jax.Array | None = None
    n_units: jax.Array | None = None


def redrawn_skce(
    key: jax.Array,
    terms: KernelTerms,
    data: Rows,
    n_resamples: int,
    n_cells: int,
    axis: Axis,
    sampler: NullSampler,
    readable: Readable | None = None,
) -> RedrawnSKCE:
    """The sums of kernels for clean data and data sets under H0.

    They come with the squares of `readable` statistics of all rows, if there are any.
    """
    draw_key, feature_key = jax.random.split(key)
    terms = in_dtype(terms, data.weights.dtype)
    data, n_kept = kept_first(with_known_weights(data), data.where)
    statistics: list[Any] = [_statistic(feature_key, terms, data, n_kept, n_cells, axis)]
    if readable is not None:
        statistics.append(sums_over_rows(readable, data, axis))
    found, *of_rows = run(statistics, draw_key, data, n_resamples, sampler, axis)
    values = jnp.concatenate([found.observed[None], found.draws]).T
    squares = [tested_squares(statistics[1], x) for x in of_rows]
    return RedrawnSKCE(values, found.shared, *squares, *(x.n_units for x in of_rows))


def _statistic(
    key: jax.Array,
    terms: KernelTerms,
    data: Rows,
    n_kept: jax.Array | int,
    n_cells: int,
    axis: Axis,
) -> KernelSums:
    """The statistic of clean data, of which the first `n_kept` rows of this device count."""
    first, n_rows = global_offset(n_kept, axis)
    is_coarse = data.is_censored
    # What a distance compares is made once of each row: a quantile may take many steps.
    compared = [embedded_rows(kernel, data.predictions) for kernel in terms.weightings]
    n_all = data.n * axis_size(axis)
    size = min(n_cells, n_all)
    cells = None
    if size < n_all and data.predictions.n_labels == 2 and not terms.of_columns and not is_coarse:
        probabilities = prediction_coordinates(data.predictions)[:, 0]
        cells = choose_cells(probabilities, data.weights != 0, size, axis)
    landmarks = []
    for kernel, predictions in zip(terms.weightings, compared, strict=True):
        if cells is None:
            points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
        else:
            points = rows_at(predictions, data.n, cells.medians, axis)
        landmarks.append(Landmarks(points, n_rows, kernel))
    places = {kernel_list: pair[0] for kernel_list, pair in terms.forms}
    matrices = [_matrices(x, landmarks[places[k]]) for k, x in enumerate(terms.kernel_lists)]
    weightings: list[Weighting] = [*landmarks]
    if terms.of_columns:
        assert data.covariates is not None
        kernels_of_columns = terms.of_columns[0].kernels
        columns = ranked(
            data.covariates.values,
            prediction_coordinates(data.predictions),
            kernels_of_columns.sizes,
            data.weights != 0,
            axis,
        )
        compared.append(columns)
        weightings.append(column_features(kernels_of_columns, columns, data.weights, axis))

    by_pit = data.predictions.is_ordered
    by_pit &= all(residual.is_of_pit for residual in terms.residuals)
    # If a PIT stands for its target, all rows tell the same pieces of the line.
    is_target = not isinstance(data.predictions, KnownLevels)
    found = pit_partition(data.predictions) if is_target else None
    pieces = found if isinstance(found, tuple) else ()
    in_pit_cells = by_pit and not is_coarse and size < n_all
    in_pit_cells &= bool(pieces) or not has_atoms(data.predictions)
    one = indexed(data.samples, 0)
    keys = jax.random.split(key, len(terms.residuals))
    features = [x.finite(k, *one) for k, x in zip(keys, terms.residuals, strict=True)]
    if in_pit_cells:
        features = [x.in_pit_cells(pieces, data.weights.dtype) for x in features]
    if cells is not None:
        events, n_numbers = _events_of(features, data, cells.of_rows, size)
        shared = terms, features, weightings, matrices, n_numbers
        return CellSums([], *shared, by_pit, in_pit_cells, events)
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    for index, weighting in enumerate(landmarks):
        compared[index] = weighting.cells(compared[index], numbers, size < n_all)
    n_numbers = tuple(x.n_numbers(*indexed(data.samples, slice(1))) for x in features)
    return KernelSums(
        compared, terms, features, weightings, matrices, n_numbers, by_pit, in_pit_cells
    )


def _events_of(
    features: list[FiniteResidual], data: Rows, cells: jax.Array, n_cells: int
) -> tuple[EventSums, tuple[int, ...]]:
    """The sums over cells ``[n]``, and how many numbers each feature has."""
    labels = jnp.broadcast_to(jnp.arange(2, dtype=jnp.int32), (data.n, 2))
    tables = [x.values(data.predictions, labels, labels) for x in features]
    if data.outcome_weights is not None:
        tables = [data.outcome_weights[..., None] * table for table in tables]
    probabilities = as_labels(data.predictions).label_probabilities()
    probabilities = sampled(probabilities, data.outcome_weights)
    # With the mean 0, residuals of a label are multiples of y - q.
    q = probabilities[:, 1] / jnp.sum(probabilities, axis=1)
    columns = jnp.concatenate([table[:, 1] - table[:, 0] for table in tables], axis=1)
    n_numbers = tuple(table.shape[2] for table in tables)
    return EventSums.of(columns, data.weights, q, cells, n_cells), n_numbers


def _matrices(kernels: Sequence[KernelLike], landmarks: Landmarks) -> jax.Array:
    """K of each of U kernels of one list at the landmarks, ``[U, F, F]``."""
    if len(kernels) == 1:
        return landmarks.matrix(kernels[0])[None]
    return jax.vmap(landmarks.matrix)(jax.tree.map(lambda *x: jnp.stack(x), *kernels))
