r"""The SKCE of several kernels, for the observed targets and for redrawn ones.

With coordinates w(p) with respect to landmarks, the matrix K of k_P at the landmarks, and residuals
r_i of the features of the targets, n^2 times the biased SKCE is

    sum_ij k_P(p_i, p_j) <r_i, r_j>  ~  sum_ab K_ab <G_a, G_b>,    G_a = sum_i w_a(p_i) r_i,

with equality up to as many rows as landmarks.  All D data sets of targets share w and K, and all
kernels share the residuals: the time is O(n F M D), for F landmarks and features of M numbers, and
the memory is O(F M D) for some data sets at a time.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numbers import dot
from calibjax._rows import Data, in_dtype, kept_first
from calibjax._sharding import Axis, axis_size, global_offset
from calibjax.discrepancy import PITResidual
from calibjax.features import (
    DrawnPlaces,
    choose_landmarks,
    landmarks_with_base,
    numbers_of_row,
    residual_feature,
)
from calibjax.hypothesis_tests._kernel_terms import KernelTerms
from calibjax.kernels import embedded_rows
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    draw_groups,
    draw_places,
    draw_targets,
    sum_over_rows,
)

# How many sums G are in memory at a time.
_SUMS = 2**20
# The group of draws whose mean stands for the expectation of a feature.
_EXPECTATION_GROUP = 2**31 - 1


def redrawn_skce(
    key: jax.Array, terms: KernelTerms, data: Data, n_resamples: int, n_features: int, axis: Axis
) -> tuple[jax.Array, jax.Array]:
    """The sums over all pairs for each kernel, ``[K, 1 + n_resamples]``, and diagonals ``[K]``.

    The observed targets come first.  The diagonals are sum_i k_P(p_i, p_i) |r_i|^2 for the observed
    targets; without them the first sum would be n (n-1) times the unbiased SKCE.  `data` are clean.
    """
    draw_key, feature_key = jax.random.split(key)
    terms = in_dtype(terms, data.weights.dtype)
    data, n_kept = kept_first(data, data.where)
    first, n_rows = global_offset(n_kept, axis)
    numbers = first + jnp.arange(data.n, dtype=jnp.int32)
    features = _features(feature_key, terms, data)
    size = min(n_features, data.n * axis_size(axis))
    interpolates = size < data.n * axis_size(axis)
    kernels = terms.base_kernels()
    # What a distance compares is made once of each row: a quantile may take many steps.
    compared = [embedded_rows(kernel, data.predictions) for kernel in kernels]
    rows = ((data.samples, compared, numbers), data.weights)
    bases = []
    for kernel, predictions in zip(kernels, compared, strict=True):
        points = choose_landmarks(predictions, n_kept, n_rows, size, axis)
        bases.append(landmarks_with_base(points, n_rows, kernel, interpolates))
    matrices = [group.matrices(bases[group.base]) for group in terms.groups]
    pairs = sorted({(group.base, group.source) for group in terms.groups})

    # U of a continuous law is uniform: neither targets nor their cdf are needed.
    judges_places = not data.predictions.has_atoms and all(
        isinstance(source, PITResidual) for source in terms.sources
    )

    def sums_of_rows(chunk: Any, groups: jax.Array) -> Any:
        """G of each pair of a base and a source, and the diagonal of each term as observed."""
        ((predictions, targets), compared, numbers), weights = chunk
        if judges_places:
            places = draw_places(draw_key, numbers, groups, data.weights.dtype)
            targets = DrawnPlaces(predictions.unit_interval(targets), *places)
        else:
            drawn = draw_groups(draw_key, predictions, numbers, groups)
            targets = jnp.concatenate([targets[:, None], drawn], axis=1)
        others = draw_targets(draw_key, predictions, numbers, jnp.int32(_EXPECTATION_GROUP))
        w = [
            weights[:, None] * base.coordinates(x, numbers)
            for base, x in zip(bases, compared, strict=True)
        ]
        sums = {(b, s): features[s].sums(w[b], predictions, targets, others) for b, s in pairs}
        diagonals = [
            dot(_diagonal(k, w[g.base]), sums[g.base, g.source].squares)
            for g, k in zip(terms.groups, matrices, strict=True)
        ]
        return [sums[pair].sums for pair in pairs], diagonals

    def forms(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sums over pairs of each kernel ``[K, 1 + draws]``, and the diagonals ``[K]``."""
        sums, of_terms = sum_over_rows(
            lambda chunk: sums_of_rows(chunk, groups), *rows, per_row, axis
        )
        of_pair = dict(zip(pairs, sums, strict=True))
        values = jnp.zeros((terms.n_kernels, sums[0].shape[1]), data.weights.dtype)
        diagonals = jnp.zeros(terms.n_kernels, data.weights.dtype)
        for group, k, diagonal in zip(terms.groups, matrices, of_terms, strict=True):
            owners = jnp.array(group.owners)
            values = values.at[owners].add(_forms(k, of_pair[group.base, group.source]))
            diagonals = diagonals.at[owners].add(diagonal)
        return values, diagonals

    n_groups = -(-n_resamples // DRAWS_PER_GROUP)
    one = jax.tree.map(lambda x: x[:1], rows)
    shapes = jax.eval_shape(lambda: sums_of_rows(one, jnp.zeros(1, jnp.int32)))[0]
    together = max(1, min(n_groups, _SUMS // sum(math.prod(x.shape) for x in shapes)))
    n_passes = -(-n_groups // together)
    n_sets = 1 + together * DRAWS_PER_GROUP
    per_row = sum(
        numbers_of_row(features[source], n_sets, math.prod(x.shape[2:]))
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


def _forms(matrices: jax.Array, sums: jax.Array) -> jax.Array:
    """sum_ab K_ab <G_a, G_b> for each K of ``[T, F, F]`` and each data set of G ``[F, D, M]``."""
    flat = sums.reshape(sums.shape[0], -1)

    def form(matrix: jax.Array) -> jax.Array:
        return jnp.sum(sums * dot(matrix, flat).reshape(sums.shape), axis=(0, 2))

    return lax.map(form, matrices)


def _diagonal(matrices: jax.Array, w: jax.Array) -> jax.Array:
    """w_i^T K w_i for each K of ``[T, F, F]`` and each row of w ``[n, F]``, ``[T, n]``."""
    return lax.map(lambda matrix: jnp.sum(dot(w, matrix) * w, axis=1), matrices)
