r"""The SKCE of several kernels, for the observed targets and for data sets under H0.

With coordinates w(p) with respect to landmarks, the matrix K of k_P at the landmarks, and residuals
r_i of the features of the targets, n^2 times the biased SKCE is

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab K_ab <G_a, G_b>,    G_a = sum_i w_a(p_i) r_i,

with equality up to as many rows as landmarks.  All D data sets of targets share w and K, and all
kernels share the residuals: the time is O(n F M D), for F landmarks and features of M numbers, and
the memory is O(F M D) for some data sets at a time.  If this takes several passes over the rows, w
is computed once where it is not too large, and the diagonals in the first pass only.

Data sets under H0 have residuals of targets that are drawn from the predictions, or, of rows that
depend on each other, observed residuals with multipliers (`_multiplied.py`).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._interval_censored import Between
from calibjax._rows import Data, in_dtype, kept_first
from calibjax._sharding import Axis, all_sum, axis_size, global_offset
from calibjax.discrepancy import PITResidual
from calibjax.expectations import prediction_coordinates
from calibjax.features import (
    choose_landmarks,
    column_features,
    landmarks_with_base,
    map_rows,
    numbers_of_row,
    ranked,
    residual_feature,
)
from calibjax.hypothesis_tests._kernel_terms import KernelTerms
from calibjax.hypothesis_tests._law_under_h0 import REDRAWN, Law, multipliers_of_law
from calibjax.hypothesis_tests._row_sums import Base, KnownCoordinates, RowSums
from calibjax.kernels import embedded_rows
from calibjax.resampling import DRAWS_PER_GROUP, sum_over_rows

# How many sums G are in memory at a time, and how many numbers that the multipliers of rows share.
_SUMS, _SHARED = 2**20, 2**26
# How many coordinates of rows are in memory, if several passes over the rows need them.
_COORDINATES = 2**25


def redrawn_skce(
    key: jax.Array,
    terms: KernelTerms,
    data: Data,
    n_resamples: int,
    n_features: int,
    axis: Axis,
    law: Law = REDRAWN,
) -> tuple[jax.Array, jax.Array]:
    """The sums over all pairs for each kernel, ``[K, 1 + n_resamples]``, and diagonals ``[K]``.

    The observed targets come first.  The diagonals are sum_i k_P(p_i, p_i) |r_i|^2 for the observed
    targets; without them the first sum would be n (n-1) times the unbiased SKCE.  `data` are clean.
    The data sets under H0 come from `law`.
    """
    draw_key, feature_key = jax.random.split(key)
    terms = in_dtype(terms, data.weights.dtype)
    hidden = None
    if isinstance(data.targets, Between):
        hidden = data.targets.hiding(data.weights != 0, axis)
    (data, hidden), n_kept = kept_first((data, hidden), data.where)
    first, n_rows = global_offset(n_kept, axis)
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)

    # What a distance compares is made once of each row: a quantile may take many steps.
    kernels = terms.base_kernels()
    compared = [embedded_rows(kernel, data.predictions) for kernel in kernels]
    n_all = data.n * axis_size(axis)
    size, landmarks = min(n_features, n_all), []
    for kernel, predictions in zip(kernels, compared, strict=True):
        points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
        landmarks.append(landmarks_with_base(points, n_rows, kernel, size < n_all))

    bases: list[Base] = [*landmarks]
    if terms.of_columns:
        columns = _columns(terms, data, axis)
        compared.append(columns)
        bases.append(column_features(terms.of_columns[0].kernels, columns, data.weights, axis))

    xi = multipliers_of_law(key, data, numbers, law, axis)
    row_sums = RowSums(
        key=draw_key,
        terms=terms,
        features=_features(feature_key, terms, data),
        bases=bases,
        matrices=[group.matrices(landmarks[group.base]) for group in terms.groups],
        multipliers=xi,
        missing=[],
        by_place=data.predictions.is_ordered
        and all(isinstance(source, PITResidual) for source in terms.sources),
    )
    of_targets = data.samples, hidden, numbers
    missing = row_sums.missing_in(of_targets, data.weights, axis)
    row_sums = dataclasses.replace(row_sums, missing=missing)
    rows = (of_targets, compared, None if xi is None else xi.rows), data.weights
    total_weight = all_sum(jnp.sum(data.weights), axis)

    n_groups = -(-n_resamples // DRAWS_PER_GROUP)
    together, per_row = _pass_sizes(row_sums, rows, n_groups)
    n_passes = -(-n_groups // together)
    if n_passes > 1:
        row_sums, compared = _with_coordinates(row_sums, compared, numbers)
        rows = (of_targets, compared, None if xi is None else xi.rows), data.weights

    def forms(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        shared = row_sums.shared(groups)
        summed = sum_over_rows(
            lambda chunk: row_sums.of_rows(chunk, groups, shared), *rows, per_row, axis
        )
        return row_sums.forms(summed, total_weight)

    groups = jnp.arange(n_passes * together, dtype=jnp.int32).reshape(n_passes, together)
    values, diagonals = lax.map(forms, groups)
    drawn = jnp.moveaxis(values[:, :, 1:], 0, 1).reshape(values.shape[1], -1)
    return jnp.concatenate([values[0, :, :1], drawn[:, :n_resamples]], axis=1), diagonals[0]


def _columns(terms: KernelTerms, data: Data, axis: Axis) -> jax.Array:
    """Covariates and coordinates of the predictions, as `column_features` takes them."""
    assert data.covariates is not None
    values, sizes = data.covariates.values, terms.of_columns[0].kernels.sizes
    coordinates = prediction_coordinates(data.predictions)
    return ranked(values, coordinates, sizes, data.weights != 0, axis)


def _features(key: jax.Array, terms: KernelTerms, data: Data) -> list[Any]:
    one = jax.tree.map(lambda x: x[0], data.samples)
    keys = jax.random.split(key, len(terms.sources))
    return [residual_feature(k, s, *one) for k, s in zip(keys, terms.sources, strict=True)]


def _with_coordinates(
    row_sums: RowSums, compared: list[Any], numbers: jax.Array
) -> tuple[RowSums, list[Any]]:
    """The bases, and what they take of rows; coordinates themselves where they fit into memory."""
    bases, given = [*row_sums.bases], [*compared]
    n_left = _COORDINATES
    for i, base in enumerate(row_sums.bases):

        def of_rows(rows: tuple[Any, jax.Array], base: Base = base) -> jax.Array:
            return base.coordinates(*rows)

        rows = compared[i], numbers
        size = _n_numbers(jax.eval_shape(of_rows, rows))
        if size <= n_left:
            n_left -= size
            given[i] = map_rows(of_rows, rows, numbers, size // numbers.size)
            bases[i] = KnownCoordinates()
    return dataclasses.replace(row_sums, bases=bases), given


def _pass_sizes(row_sums: RowSums, rows: Any, n_groups: int) -> tuple[int, int]:
    """How many groups of data sets share a pass over the rows, and how many numbers a row has."""
    one, zero = jax.tree.map(lambda x: x[:1], rows), jnp.zeros(1, jnp.int32)
    shared = jax.eval_shape(row_sums.shared, zero)
    sums, *_ = jax.eval_shape(row_sums.of_rows, one, zero, shared)
    together = min(n_groups, _SUMS // _n_numbers(sums), _SHARED // max(_n_numbers(shared), 1))
    n_sets = 1 + max(together, 1) * DRAWS_PER_GROUP
    by_class = row_sums.multipliers is None
    per_row = sum(
        numbers_of_row(row_sums.features[source], n_sets, math.prod(x.shape[2:]), by_class)
        for (_, source), x in zip(row_sums.pairs, sums, strict=True)
    )
    return max(together, 1), per_row


def _n_numbers(shapes: Any) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))
