"""Residuals of features, r = f(p, y) - E f(p, Z) with Z ~ p, for many targets of a prediction.

A kernel k_P(p, q) <f(p, y), f(q, z)> has h = k_P(p, q) <r, s> with the residuals r and s of both
samples.  With weights w_a(p), a = 1, …, F, such as whether p is in the cell of a landmark, a test
needs the sums

    G_a = sum_i w_a(p_i) r_i

for each of D data sets of targets with the same predictions, and the squares |r_i|^2 for the first
one, the observed targets.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial
from jax.typing import DTypeLike

from calibjax._base.compile import on_cpu
from calibjax._base.struct import PyTree, batch_of_one, rows_of, static, struct, type_name
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._numbers.arithmetic import dot, eigh_of_kernel, x_where
from calibjax._numbers.unit_interval import UnitInterval, cell_of_line, cells_of_line
from calibjax.discrepancy import (
    EmbeddedTarget,
    FeatureResidual,
    PITResidual,
    SteinResidual,
    TargetResidual,
)
from calibjax.expectations import all_labels
from calibjax.features.random_features import sum_arrays, target_frequencies
from calibjax.kernels import KernelLike, WhiteKernel, pairwise, stein_scores, sum_of_products, times


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


class Hidden(NamedTuple):
    """What would be known of a draw that is hidden as its row is.

    Args:
        interval: where U lies if the draw is hidden, ``[n]``.
        contains: which draws are hidden, ``[n, D]``; U of the others is known.
    """

    interval: UnitInterval
    contains: jax.Array


class DrawnPIT(NamedTuple):
    """Where U = F(y) lies for the observed targets, and for draws of them under H0.

    Args:
        observed: the intervals of the observed targets, ``[n]``.
        drawn: U and 1 - U of the draws, both ``[n, D]``, or their intervals.
        hidden: which draws are hidden; None if none is.
    """

    observed: UnitInterval
    drawn: tuple[jax.Array, jax.Array] | UnitInterval
    hidden: Hidden | None = None

    def values(
        self,
        of_intervals: Callable[[UnitInterval], jax.Array],
        of_points: Callable[[jax.Array, jax.Array], jax.Array],
    ) -> jax.Array:
        """Functions of the unit line for the observed targets and all draws, ``[n, 1 + D, M]``."""
        observed = of_intervals(self.observed)[:, None]
        if isinstance(self.drawn, UnitInterval):
            drawn = of_intervals(self.drawn)
        else:
            drawn = of_points(*self.drawn)
        if self.hidden is not None:
            of_hidden = of_intervals(self.hidden.interval)[:, None]
            drawn = x_where(self.hidden.contains[..., None], of_hidden, drawn)
        return jnp.concatenate([observed, drawn], axis=1)


#: The arguments of ``residuals``: predictions, targets, and draws that are independent of these.
Arguments = tuple[Distribution, PyTree, jax.Array]
#: A function of one prediction and one target that returns a vector ``[M]``.
TargetFeature = Callable[[Distribution, jax.Array], jax.Array]


@struct
class DrawnFeature:
    """A feature f of any family, whose expectation is the mean over targets drawn for it.

    Args:
        feature: f.
    """

    feature: TargetFeature

    def residuals(
        self, predictions: Distribution, targets: jax.Array, others: jax.Array
    ) -> jax.Array:
        """``[n, D, M]`` for targets ``[n, D, …]``; `others` ``[n, D', …]`` are drawn independently.

        The mean over the other draws is not the expectation itself, but it is the same in all data
        sets: their order, and with it the level of a test, does not depend on it.
        """

        def residuals_of_row(p: Distribution, targets: jax.Array, others: jax.Array) -> jax.Array:
            values = jax.vmap(self.feature, (None, 0))
            return _difference(values(p, targets), jnp.mean(values(p, others), axis=0))

        return jax.vmap(residuals_of_row)(predictions, targets, others)


@struct
class CentredFeature:
    """A feature f of any family, whose expectation is 0.

    Args:
        feature: f, of a prediction and a target or, as a `UnitFeature`, of U = F(y).
        table: its means over the cells of the line, which stand for it, ``[cells, M]``; or None.
        pieces: the ends of these cells, if they are not those of `cells_of_line`.
    """

    feature: Any
    table: jax.Array | None = None
    pieces: tuple[float, ...] = static(default=())

    def of_cells(self, pieces: tuple[float, ...], dtype: DTypeLike) -> "CentredFeature":
        """The same of a `UnitFeature`, of cells of the line: looked up, not made for each draw.

        `pieces` are the ends of the cells, if a PIT is known no better.
        """
        # XLA would compute a table of constants while it compiles, in seconds.
        cells = lax.optimization_barrier(cells_of_line(dtype, pieces))
        return CentredFeature(self.feature, self.feature.of_intervals(cells), pieces)

    def residuals(
        self,
        predictions: Distribution,
        targets: jax.Array | UnitInterval | DrawnPIT,
        others: jax.Array,
    ) -> jax.Array:
        """``[n, D, M]`` for targets ``[n, D, …]``, intervals, or the PIT of targets and draws."""
        if isinstance(targets, UnitInterval):
            return self.feature.of_intervals(targets)
        if self.table is not None and isinstance(targets, DrawnPIT):
            both = zip(targets.observed.middle(), targets.drawn, strict=False)
            u, above = (jnp.concatenate([x[:, None], drawn], axis=1) for x, drawn in both)
            return rows_of(self.table, cell_of_line(u, above, self.pieces))
        if isinstance(targets, DrawnPIT):
            return targets.values(self.feature.of_intervals, self.feature.of_points)
        return jax.vmap(jax.vmap(self.feature, (None, 0)))(predictions, targets)


@struct
class LabelFeature:
    """A feature f of labels, whose expectation is a finite sum."""

    feature: TargetFeature

    def residuals(
        self, predictions: Distribution, targets: jax.Array, others: jax.Array
    ) -> jax.Array:
        """``[n, D, M]`` for labels ``[n, D]``."""

        def residuals_of_row(p: Labels, labels: jax.Array) -> jax.Array:
            table = jax.vmap(self.feature, (None, 0))(p, all_labels(p))
            probabilities = p.label_probabilities()
            # A feature such as log p(y) may be infinite at labels that never occur.
            possible = x_where(probabilities[:, None] > 0, table, 0.0)
            return _difference(rows_of(table, labels), dot(probabilities, possible))

        return jax.vmap(residuals_of_row)(as_labels(predictions), targets)


@struct
class Indicators:
    """The feature e_y of labels: its kernel is the WhiteKernel."""

    def residuals(
        self, predictions: Distribution, targets: jax.Array, others: jax.Array
    ) -> jax.Array:
        """e_y - p, ``[n, D, m]``, for labels ``[n, D]``."""
        probabilities = as_labels(predictions).label_probabilities()
        indicators = jax.nn.one_hot(targets, probabilities.shape[1], dtype=probabilities.dtype)
        return indicators - probabilities[:, None]


#: How a test takes the residual of a target.
Feature = DrawnFeature | CentredFeature | LabelFeature | Indicators

# Up to this number of classes a product of matrices with indicators is faster than sums over the
# rows of each class.
_MANY_CLASSES = 32


def residual_sums(
    feature: Feature,
    weights: Sequence[Weights],
    predictions: Distribution,
    targets: PyTree,
    others: jax.Array,
) -> list[ResidualSums]:
    """The sums and squares of ``feature.residuals(predictions, targets, others)``.

    One for each of the weights ``[n, F]``, for all of which the residuals are computed once.
    """
    if isinstance(feature, Indicators):
        probabilities = as_labels(predictions).label_probabilities()
        if probabilities.shape[1] > _MANY_CLASSES or isinstance(weights[0], InCells):
            return [_sums_of_many_classes(w, probabilities, targets) for w in weights]
    residuals = feature.residuals(predictions, targets, others)
    return [sums_of_residuals(w, residuals) for w in weights]


def sums_of_residuals(weights: Weights, residuals: jax.Array) -> ResidualSums:
    """The sums of residuals ``[n, D, M]``."""
    n, *shape = residuals.shape
    sums = weighted_sums(weights, residuals.reshape(n, -1)).reshape(-1, *shape)
    return ResidualSums(sums, jnp.sum(jnp.square(residuals[:, 0]), axis=1))


def numbers_of_row(feature: Feature, n_sets: int, size: int, by_class: bool) -> int:
    """How many numbers of a row are in memory for sums of `size` numbers in each data set.

    `by_class` says whether `residual_sums` makes them, without residuals of many classes.
    """
    by_class = by_class and isinstance(feature, Indicators) and size > _MANY_CLASSES
    return n_sets if by_class else n_sets * size


# In units of the precision of the dtype.
_ROUNDING = 64


def _difference(values: jax.Array, mean: jax.Array) -> jax.Array:
    """f - E f for values ``[D, M]``, and 0 where it is below its rounding error."""
    residuals = values - mean[None]
    rounding = _ROUNDING * jnp.finfo(values.dtype).eps * jnp.abs(values)
    return x_where(jnp.abs(residuals) <= rounding, 0.0, residuals)


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


# The number of frequencies of a kernel of numbers, and of a kernel of vectors.
_FREQUENCIES, _VECTOR_FREQUENCIES = 8, 32
# One in so many frequencies of a kernel of numbers is kept, at even ranks.
_DRAWS_PER_FREQUENCY = 64


def residual_feature(
    key: jax.Array, residual: TargetResidual, p: Distribution, y: jax.Array
) -> Feature:
    """The feature of a residual, with finitely many numbers, ready for sums over rows.

    `p` and `y` are one prediction and one target, which give shapes and dtypes.  TypeError if the
    frequencies of a kernel of real targets or counts are not known.
    """
    dtype = jax.tree.leaves(p)[0].dtype
    if isinstance(residual, SteinResidual):
        return CentredFeature(
            _SteinFourierFeatures(_draw_fourier_features(key, residual.kernel, y, dtype))
        )
    if isinstance(residual, PITResidual):
        return CentredFeature(residual.feature)
    if isinstance(residual, FeatureResidual):
        feature = residual.feature
        return LabelFeature(feature) if isinstance(p, Labels) else DrawnFeature(feature)
    if not isinstance(residual, EmbeddedTarget):
        raise TypeError(f"a joint kernel has no feature of targets, got {type_name(residual)}.")
    if not isinstance(p, Labels):
        return DrawnFeature(_draw_fourier_features(key, residual.kernel, y, dtype))
    if isinstance(residual.kernel, WhiteKernel) and p.label_probabilities().size > 2:
        return Indicators()
    return LabelFeature(Partial(_row_of, _root(residual.kernel, p)))


def _row_of(table: jax.Array, p: Distribution, y: jax.Array) -> jax.Array:
    """The feature f(y) that is row y of a table."""
    return table[y]


def _root(kernel: KernelLike, p: Labels) -> jax.Array:
    """A matrix R with <R_a - R_b, R_c - R_d> as K has it, ``[m, M]``, K = k_Y at all labels."""
    labels = all_labels(p)
    matrix = pairwise(kernel, labels, labels).astype(p.label_probabilities().dtype)
    if labels.size == 2:
        # One number says which of two labels it is: |R_1 - R_0|^2 = K_00 - 2 K_01 + K_11.
        square = matrix[0, 0] - matrix[0, 1] - matrix[1, 0] + matrix[1, 1]
        return jnp.stack([jnp.zeros_like(square), jnp.sqrt(square)])[:, None]
    # Only differences of rows matter: a kernel such as -|y - z| is positive definite on them.
    of_rows = jnp.mean(matrix, axis=1)
    matrix = matrix - of_rows[:, None] - of_rows[None] + jnp.mean(of_rows)
    values, vectors = eigh_of_kernel(matrix)
    return vectors * jnp.sqrt(values)[None, :]


@struct
class _FourierFeatures:
    """The features a cos(<v, y>) and a sin(<v, y>) for frequencies v and amplitudes a."""

    frequencies: jax.Array
    amplitudes: jax.Array

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        angles = dot(self.frequencies, jnp.atleast_1d(y).astype(self.frequencies.dtype))
        fourier = jnp.stack([jnp.cos(angles), jnp.sin(angles)])
        return (self.amplitudes[None] * fourier).ravel()


@struct
class _SteinFourierFeatures:
    """The features (s_p(y) + grad_y) f(y) for Fourier features f of a target kernel."""

    fourier: _FourierFeatures

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        p, y = batch_of_one((p, y))
        (score,) = stein_scores(p, y)
        (y,) = y.astype(score.dtype)
        values, slopes = self.fourier(p, y), jax.jacfwd(lambda y: self.fourier(p, y))(y)
        return jnp.ravel(values[:, None] * jnp.ravel(score)[None] + slopes.reshape(values.size, -1))


def _draw_fourier_features(
    key: jax.Array, kernel: KernelLike, y: jax.Array, dtype: DTypeLike
) -> _FourierFeatures:
    terms = sum_of_products(kernel)
    size = _VECTOR_FREQUENCIES if y.ndim else _FREQUENCIES
    frequencies, amplitudes = [], []
    for term_key, (factor, kernels) in zip(jax.random.split(key, len(terms)), terms, strict=True):
        frequencies.append(_frequencies(term_key, kernels, y, dtype, size))
        amplitudes.append(jnp.full(size, jnp.sqrt(jnp.asarray(times(factor, 1.0), dtype) / size)))
    return _FourierFeatures(jnp.concatenate(frequencies), jnp.concatenate(amplitudes))


def _frequencies(
    key: jax.Array, kernels: list[KernelLike], y: jax.Array, dtype: DTypeLike, size: int
) -> jax.Array:
    """Frequencies ``[size, d]`` of a product of target kernels.

    For numbers they are the even quantiles of many draws, whose average is closer to the kernel
    than the average of a few draws.
    """
    n_draws = size if y.ndim else size * _DRAWS_PER_FREQUENCY
    # A frequency of a product of kernels is the sum of one frequency of each.
    draws = [
        target_frequencies(kernel, kernel_key, n_draws, y, dtype)
        for kernel, kernel_key in zip(kernels, jax.random.split(key, len(kernels)), strict=True)
    ]
    total = sum_arrays(draws)
    if y.ndim:
        return total
    # The sign of a frequency does not matter.
    ordered = jnp.sort(jnp.abs(total))
    return ordered[_DRAWS_PER_FREQUENCY // 2 :: _DRAWS_PER_FREQUENCY, None]
