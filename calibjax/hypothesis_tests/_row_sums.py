"""What a test sums over rows, for the observed targets and for some data sets under H0."""

import itertools

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._interval_censored import Between
from calibjax._numbers import dot
from calibjax._sharding import Axis, as_varying
from calibjax._struct import PyTree, static, struct
from calibjax.features import (
    Arguments,
    ColumnFeatures,
    Feature,
    Landmarks,
    residual_sums,
    sums_of_residuals,
)
from calibjax.hypothesis_tests._kernel_terms import ColumnGroup, Group, KernelTerms
from calibjax.hypothesis_tests._multiplied import centred, missing_deviations, multiplied
from calibjax.hypothesis_tests._target_sets import target_sets
from calibjax.resampling import ClusterMultipliers, TimeMultipliers, draw_targets

# How many numbers of a row are in memory for its variances, about.
_PER_ROW = 2**10
# The groups of draws that stand for the expectation of a feature, and of its square.
_EXPECTATION_GROUP, _VARIANCE_GROUP = 2**31 - 1, 2**31 - 2


#: Samples, between which ends draws of them are hidden, or None, and their numbers in all data.
Rows = tuple[tuple[Distribution, PyTree], Between | None, jax.Array]
#: G of each pair, what the diagonals of groups follow from, and the sums of multipliers, if any.
Sums = tuple[list[jax.Array], list[jax.Array], list[jax.Array]]


@struct
class KnownCoordinates:
    """What stands for landmarks where the coordinates of all rows are in memory."""

    def coordinates(self, known: jax.Array, rows: jax.Array) -> jax.Array:
        """The coordinates themselves, ``[n, F]``."""
        return known


#: What has the coordinates w of rows: landmarks, or features of covariates.
Base = Landmarks | ColumnFeatures | KnownCoordinates


@struct
class RowSums:
    """The sums G of all pairs of a base of landmarks and a source of residuals.

    Args:
        key: the key of the draws.
        terms: the kernels.
        features: what the residuals of each source are features of.
        bases: of each distance between predictions, and of covariates.
        matrices: K of the terms of each group at its landmarks.
        multipliers: of the rows, if residuals are multiplied instead of targets redrawn.
        missing: lambda of each feature for multipliers, which `missing_in` finds.
        by_place: whether U of a target is all that features see.
    """

    key: jax.Array
    terms: KernelTerms
    features: list[Feature]
    bases: list[Base]
    matrices: list[jax.Array]
    multipliers: ClusterMultipliers | TimeMultipliers | None
    missing: list[jax.Array]
    by_place: bool = static()

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The bases and sources that go together, those of each source side by side."""
        return [(b, s) for s, bases in enumerate(self.bases_of_features) for b in bases]

    @property
    def bases_of_features(self) -> list[list[int]]:
        """The bases that go with each source."""
        groups: list[Group | ColumnGroup] = [*self.terms.groups, *self.terms.of_columns]
        return [
            sorted({group.base for group in groups if group.source == source})
            for source in range(len(self.features))
        ]

    def missing_in(self, rows: Rows, weights: jax.Array, axis: Axis) -> list[jax.Array]:
        """lambda of each feature; `rows` are those that `arguments` takes."""
        if self.multipliers is None:
            return []
        group = jnp.full(1, _VARIANCE_GROUP, jnp.int32)
        return missing_deviations(
            self.features, lambda x: self.arguments(x, group), rows, weights, _PER_ROW, axis
        )

    def arguments(self, rows: Rows, groups: jax.Array) -> Arguments:
        """What features take of (samples, hidden, numbers): observed and drawn targets, others."""
        samples, hidden, numbers = rows
        targets = target_sets(self.key, samples, hidden, numbers, groups, self.by_place)
        others = draw_targets(self.key, samples[0], numbers, jnp.int32(_EXPECTATION_GROUP))
        return samples[0], targets, others

    def shared(self, groups: jax.Array) -> PyTree:
        """What all rows share of some groups of data sets."""
        return None if self.multipliers is None else self.multipliers.shared(groups)

    def of_rows(self, chunk: tuple[PyTree, jax.Array], groups: jax.Array, shared: PyTree) -> Sums:
        """G of each pair, moments of each group as observed, and the sums of multipliers.

        Only the pass that begins with group 0 has moments; in the others they are 0.
        """
        (of_targets, compared, units), weights = chunk
        arguments, numbers = self.arguments(of_targets, groups), of_targets[-1]
        w = [
            weights[:, None] * base.coordinates(x, numbers)
            for base, x in zip(self.bases, compared, strict=True)
        ]
        of_multipliers = []
        if self.multipliers is None:
            of_features = [
                residual_sums(feature, [w[b] for b in bases], *arguments)
                for feature, bases in zip(self.features, self.bases_of_features, strict=True)
            ]
        else:
            xi = self.multipliers.values(units, shared)
            of_multipliers = [dot(weights[None], xi)]
            residuals = [
                multiplied(feature.residuals(*arguments), xi, missing)
                for feature, missing in zip(self.features, self.missing, strict=True)
            ]
            of_features = [
                [sums_of_residuals(w[b], x) for b in bases]
                for x, bases in zip(residuals, self.bases_of_features, strict=True)
            ]
        sums = list(itertools.chain.from_iterable(of_features))
        squares = {pair: x.squares for pair, x in zip(self.pairs, sums, strict=True)}
        shapes = jax.eval_shape(self._moments, w, squares)
        moments = jax.lax.cond(
            groups[0] == 0,
            self._moments,
            lambda *_: as_varying([jnp.zeros(x.shape, x.dtype) for x in shapes], w),
            *(w, squares),
        )
        return [x.sums for x in sums], moments, of_multipliers

    def _moments(
        self, w: list[jax.Array], squares: dict[tuple[int, int], jax.Array]
    ) -> list[jax.Array]:
        """sum_i |r_i|^2 w_i w_i^T of each group, ``[F, F]``; of columns its diagonal ``[F]``."""
        moments = []
        for group in self.terms.groups:
            of_base, of_source = w[group.base], squares[group.base, group.source]
            moments.append(dot((of_source[:, None] * of_base).T, of_base))
        for columns in self.terms.of_columns:
            of_source = squares[columns.base, columns.source]
            moments.append(dot(of_source, jnp.square(w[columns.base])))
        return moments

    def forms(self, summed: Sums, total_weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The sums over pairs of each kernel ``[K, 1 + D]``, and the diagonals ``[K]``.

        `summed` is what `of_rows` gives, summed over all rows.
        """
        sums, moments, of_multipliers = summed
        if isinstance(self.multipliers, TimeMultipliers):
            sums = [centred(x, of_multipliers[0] / total_weight) for x in sums]
        of_pair = dict(zip(self.pairs, sums, strict=True))
        values = jnp.zeros((self.terms.n_kernels, sums[0].shape[1]), sums[0].dtype)
        diagonals = jnp.zeros(self.terms.n_kernels, sums[0].dtype)
        n_groups = len(self.terms.groups)
        for group, k, moment in zip(
            self.terms.groups, self.matrices, moments[:n_groups], strict=True
        ):
            owners = jnp.array(group.owners)
            values = values.at[owners].add(_forms(k, of_pair[group.base, group.source]))
            # sum_i k_P(p_i, p_i) |r_i|^2 = sum_ab K_ab sum_i |r_i|^2 w_ia w_ib.
            diagonals = diagonals.at[owners].add(jnp.sum(k * moment[None], axis=(1, 2)))
        for columns, moment in zip(self.terms.of_columns, moments[n_groups:], strict=True):
            squares = jnp.sum(jnp.square(of_pair[columns.base, columns.source]), axis=2)
            own = slice(columns.first, columns.first + columns.kernels.n_kernels)
            values = values.at[own].set(columns.kernels.of_features(squares))
            diagonals = diagonals.at[own].set(columns.kernels.of_features(moment))
        return values, diagonals


def _forms(matrices: jax.Array, sums: jax.Array) -> jax.Array:
    """sum_ab K_ab <G_a, G_b> for each K of ``[T, F, F]`` and each data set of G ``[F, D, M]``."""
    flat = sums.reshape(sums.shape[0], -1)

    def form(matrix: jax.Array) -> jax.Array:
        return jnp.sum(sums * dot(matrix, flat).reshape(sums.shape), axis=(0, 2))

    return jax.lax.map(form, matrices)
