r"""The SKCE of several kernels, for the observed targets and for data sets under H0.

With coordinates w(p) with respect to landmarks, the matrix K of k_P at the landmarks, and residuals
r_i of the features of the targets, n^2 times the biased SKCE is

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab K_ab <G_a, G_b>,    G_a = sum_i w_a(p_i) r_i,

with equality up to as many rows as landmarks.  All D data sets of targets share w and K, and all
kernels share the residuals: the time is O(n F M D), for F landmarks and features of M numbers, and
the memory is O(F M D) for some data sets at a time.

Data sets under H0 have residuals of targets that are drawn from the predictions, or, of rows that
depend on each other, observed residuals with multipliers (`_multiplied.py`).
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._between import Between
from calibjax._numbers import dot
from calibjax._rows import Data, in_dtype, kept_first
from calibjax._sharding import Axis, all_sum, axis_size, global_offset
from calibjax.discrepancy import PITResidual
from calibjax.features import (
    choose_landmarks,
    landmarks_with_base,
    numbers_of_row,
    residual_feature,
    residual_sums,
    sums_of_residuals,
)
from calibjax.hypothesis_tests._kernel_terms import KernelTerms
from calibjax.hypothesis_tests._multiplied import centred, missing_deviations, multiplied
from calibjax.hypothesis_tests._target_sets import target_sets
from calibjax.kernels import embedded_rows
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    TimeMultipliers,
    draw_targets,
    multipliers,
    sum_over_rows,
)

# How many sums G are in memory at a time, and how many numbers that the multipliers of rows share.
_SUMS, _SHARED = 2**20, 2**26
# How many numbers of a row are in memory for its variances, about.
_PER_ROW = 2**10
# The groups of draws that stand for the expectation of a feature, and of its square.
_EXPECTATION_GROUP, _VARIANCE_GROUP = 2**31 - 1, 2**31 - 2
# Folded into the key for multipliers.
_MULTIPLIERS = 2**31 - 1


def redrawn_skce(
    key: jax.Array,
    terms: KernelTerms,
    data: Data,
    n_resamples: int,
    n_features: int,
    axis: Axis,
    law: str = "redrawn",
) -> tuple[jax.Array, jax.Array]:
    """The sums over all pairs for each kernel, ``[K, 1 + n_resamples]``, and diagonals ``[K]``.

    The observed targets come first.  The diagonals are sum_i k_P(p_i, p_i) |r_i|^2 for the observed
    targets; without them the first sum would be n (n-1) times the unbiased SKCE.  `data` are clean.
    The law of the data sets under H0 is "redrawn", or that of multipliers, "webb" or "normal".
    """
    draw_key, feature_key = jax.random.split(key)
    terms = in_dtype(terms, data.weights.dtype)
    hidden = (
        data.targets.hiding(data.weights != 0, axis) if isinstance(data.targets, Between) else None
    )
    (data, hidden), n_kept = kept_first((data, hidden), data.where)
    first, n_rows = global_offset(n_kept, axis)
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    features = _features(feature_key, terms, data)
    size = min(n_features, data.n * axis_size(axis))
    interpolates = size < data.n * axis_size(axis)
    kernels = terms.base_kernels()
    # What a distance compares is made once of each row: a quantile may take many steps.
    compared = [embedded_rows(kernel, data.predictions) for kernel in kernels]
    bases = []
    for kernel, predictions in zip(kernels, compared, strict=True):
        points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
        bases.append(landmarks_with_base(points, n_rows, kernel, interpolates))
    matrices = [group.matrices(bases[group.base]) for group in terms.groups]
    pairs = sorted({(group.base, group.source) for group in terms.groups})
    by_place = not data.predictions.has_atoms and all(
        isinstance(source, PITResidual) for source in terms.sources
    )
    xi = None
    if law != "redrawn":
        if data.clusters is None and data.times is None:
            data = dataclasses.replace(data, clusters=numbers)
        xi = multipliers(jax.random.fold_in(key, _MULTIPLIERS), data, law == "normal", axis)
    of_targets = data.samples, hidden, numbers

    rows = (of_targets, compared, numbers, None if xi is None else xi.rows), data.weights

    def arguments_of(rows: Any, groups: jax.Array) -> Any:
        """What features take of some rows: the targets, the draws of some groups, and others."""
        samples, hidden, numbers = rows
        targets = target_sets(draw_key, samples, hidden, numbers, groups, by_place)
        others = draw_targets(draw_key, samples[0], numbers, jnp.int32(_EXPECTATION_GROUP))
        return samples[0], targets, others

    missing = []
    if xi is not None:
        group = jnp.full(1, _VARIANCE_GROUP, jnp.int32)
        missing = missing_deviations(
            features, lambda x: arguments_of(x, group), of_targets, data.weights, _PER_ROW, axis
        )

    def sums_of_rows(chunk: Any, groups: jax.Array, shared: Any) -> Any:
        """G of each pair of a base and a source, and the diagonal of each term as observed."""
        (of_targets, compared, numbers, units), weights = chunk
        arguments = arguments_of(of_targets, groups)
        w = [
            weights[:, None] * base.coordinates(x, numbers)
            for base, x in zip(bases, compared, strict=True)
        ]
        total_factors = []
        if xi is None:
            sums = {(b, s): residual_sums(features[s], w[b], *arguments) for b, s in pairs}
        else:
            factors = xi.of_rows(units, shared)
            total_factors = [dot(weights[None], factors)]
            residuals = [
                multiplied(feature.residuals(*arguments), factors, x)
                for feature, x in zip(features, missing, strict=True)
            ]
            sums = {(b, s): sums_of_residuals(w[b], residuals[s]) for b, s in pairs}
        diagonals = [
            dot(_diagonal(k, w[g.base]), sums[g.base, g.source].squares)
            for g, k in zip(terms.groups, matrices, strict=True)
        ]
        return [sums[pair].sums for pair in pairs], diagonals, total_factors

    def forms(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sums over pairs of each kernel ``[K, 1 + draws]``, and the diagonals ``[K]``."""
        shared = None if xi is None else xi.of_groups(groups)
        sums, of_terms, factors = sum_over_rows(
            lambda chunk: sums_of_rows(chunk, groups, shared), *rows, per_row, axis
        )
        if isinstance(xi, TimeMultipliers):
            total = all_sum(jnp.sum(data.weights), axis)
            sums = [centred(x, factors[0] / total) for x in sums]
        of_pair = dict(zip(pairs, sums, strict=True))
        values = jnp.zeros((terms.n_kernels, sums[0].shape[1]), data.weights.dtype)
        diagonals = jnp.zeros(terms.n_kernels, data.weights.dtype)
        for group, k, diagonal in zip(terms.groups, matrices, of_terms, strict=True):
            owners = jnp.array(group.owners)
            values = values.at[owners].add(_forms(k, of_pair[group.base, group.source]))
            diagonals = diagonals.at[owners].add(diagonal)
        return values, diagonals

    n_groups = -(-n_resamples // DRAWS_PER_GROUP)
    one, zero = jax.tree.map(lambda x: x[:1], rows), jnp.zeros(1, jnp.int32)
    shared_shapes = jax.eval_shape(lambda: None if xi is None else xi.of_groups(zero))
    shapes = jax.eval_shape(lambda shared: sums_of_rows(one, zero, shared), shared_shapes)[0]
    n_together = [_SUMS // _n_numbers(shapes), _SHARED // max(_n_numbers(shared_shapes), 1)]
    together = max(1, min(n_groups, *n_together))
    n_passes = -(-n_groups // together)
    n_sets = 1 + together * DRAWS_PER_GROUP
    per_row = sum(
        numbers_of_row(features[source], n_sets, math.prod(x.shape[2:]), xi is None)
        for (_, source), x in zip(pairs, shapes, strict=True)
    )
    groups = jnp.arange(n_passes * together, dtype=jnp.int32).reshape(n_passes, together)
    values, diagonals = lax.map(forms, groups)
    drawn = jnp.moveaxis(values[:, :, 1:], 0, 1).reshape(values.shape[1], -1)
    return jnp.concatenate([values[0, :, :1], drawn[:, :n_resamples]], axis=1), diagonals[0]


def _features(key: jax.Array, terms: KernelTerms, data: Data) -> list[Any]:
    one = jax.tree.map(lambda x: x[0], data.samples)
    keys = jax.random.split(key, len(terms.sources))
    return [residual_feature(k, s, *one) for k, s in zip(keys, terms.sources, strict=True)]


def _n_numbers(shapes: Any) -> int:
    return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


def _forms(matrices: jax.Array, sums: jax.Array) -> jax.Array:
    """sum_ab K_ab <G_a, G_b> for each K of ``[T, F, F]`` and each data set of G ``[F, D, M]``."""
    flat = sums.reshape(sums.shape[0], -1)

    def form(matrix: jax.Array) -> jax.Array:
        return jnp.sum(sums * dot(matrix, flat).reshape(sums.shape), axis=(0, 2))

    return lax.map(form, matrices)


def _diagonal(matrices: jax.Array, w: jax.Array) -> jax.Array:
    """w_i^T K w_i for each K of ``[T, F, F]`` and each row of w ``[n, F]``, ``[T, n]``."""
    return lax.map(lambda matrix: jnp.sum(dot(w, matrix) * w, axis=1), matrices)
