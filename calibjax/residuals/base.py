"""Residuals of targets: a feature f of a target minus its expectation.

A kernel k_P(p, q) <f(p, y), f(q, z)> has h = k_P(p, q) <r, s> with the residuals

    r(p, y) = f(p, y) - E f(p, Z), Z ~ p,    and s of the other sample:

a residual has the mean 0 for a target from the prediction.  Each kind of residual is one class.
Sums over pairs take inner products, which are known where f itself has infinitely many numbers.
Sums over rows take the numbers of a `FiniteResidual`, which each class knows: of labels, whose
expectations are finite sums, and of any vector f(p, y) they are exact, and for kernels of other
targets random Fourier features stand.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, batch_of_one, rows_of, struct, type_name
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._numbers.arithmetic import ROUNDINGS_OF_TERMS, dot, eigh_of_kernel, fast_where
from calibjax.expectations import inner_product, mean_embedding
from calibjax.expectations.dispatch import (
    all_labels,
    label_residual,
    prepare_rows,
    residual_product,
    residual_product_tile,
)
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import (
    Kernel,
    KernelLike,
    Sample,
    describe,
    pairwise,
    sum_of_products,
    times,
    vmap_pairs,
)
from calibjax.kernels.predictions import embedded_rows
from calibjax.kernels.stein import stein, stein_scores, stein_tile, with_score

#: A prediction or a batch of them, or what `TargetResidual.prepare` makes of a batch.
Prepared = PyTree
#: The arguments of `FiniteResidual.values`.
Arguments = tuple[Distribution, PyTree, jax.Array]


@struct
class RowsWithNumbers:
    """Rows of which the residuals need no more than some numbers.

    Args:
        predictions: what the prediction kernel compares.
        numbers: those of each row, ``[n, …]``.
    """

    predictions: PyTree
    numbers: jax.Array

    def cross_fit_pairs(self) -> tuple[tuple[PyTree, "RowsWithNumbers"], ...]:
        return ((self.predictions, self),)


class TargetResidual(ABC):
    """One kind of residual r of a target."""

    #: As of a Kernel.
    inner_functions: ClassVar[Mapping[str, str]] = {}
    #: Whether its mean is 0 only if the density of the prediction has Stein's identity.
    needs_stein_identity: ClassVar[bool] = False

    @property
    def is_of_pit(self) -> bool:
        """Whether it depends on a target through its PIT alone."""
        return False

    def pooled(self, a: Sample) -> Sample:
        """One sample as it is compared, by default what it is."""
        return a

    @abstractmethod
    def product(self, a: Sample, b: Sample) -> jax.Array:
        """<r(p, y), r(q, z)> of one pair of samples, a scalar."""

    def square(self, a: Sample) -> jax.Array:
        """<r(p, y), r(p, y)> of one sample, a scalar."""
        return self.product(a, a)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        """The products of all pairs of two batches of prepared samples, ``[S, T]``."""
        return vmap_pairs(self.product)(a, b)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        """The predictions with what `tile` needs of each row, computed once for all rows.

        By default they are returned as they are.  Others have the `cross_fit_pairs` of
        predictions: what the prediction kernel compares, and what `tile` takes.
        """
        return rows[0]

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        """<r(p, y), f(q, z)> of one sample and one location (q, z), a scalar; by default r is f."""
        return self.product(a, location)

    def products_under(self, predictions: Distribution, others: Distribution) -> jax.Array:
        """<E r(p_i, Z_i), E r(p_j, Z_j)> of all pairs of rows, ``[n, n]``, with Z from `others`.

        Sums of them with symmetric factors are what counts.
        """
        raise NotImplementedError(
            f"equivalent_temperature is not known for a joint kernel, {describe(self)}; "
            "use a TensorProduct, or sums and multiples of them."
        )

    def finite(self, key: jax.Array, p: Distribution, y: jax.Array) -> "FiniteResidual":
        """The residual with finitely many numbers, ready for sums over rows.

        `p` and `y` are one prediction and one target, which give shapes and dtypes.  TypeError if
        the frequencies of a kernel of real targets or counts are not known.
        """
        raise TypeError(f"a joint kernel has no feature of targets, got {type_name(self)}.")


class FiniteResidual(TargetResidual):
    """A residual of M numbers."""

    @abstractmethod
    def of_one(self, a: Sample) -> jax.Array:
        """The residual of one sample, ``[M]``."""

    def values(
        self, predictions: Distribution, targets: PyTree, others: PyTree = None
    ) -> jax.Array:
        """``[n, D, M]`` for targets ``[n, D, …]``; `others` ``[n, D', …]`` are drawn independently.

        Only residuals whose expectation is not known take the mean over the other draws for it.
        """
        of_one = jax.vmap(lambda p, y: self.of_one((p, y)), (None, 0))
        return jax.vmap(of_one)(predictions, targets)

    def n_numbers(self, predictions: Distribution, targets: PyTree) -> int:
        """M, for samples in these shapes."""
        targets = jax.tree.map(lambda x: x[:, None], targets)
        return jax.eval_shape(self.values, predictions, targets, targets).shape[2]

    def of_rows(self, rows: Sample) -> jax.Array:
        """The residuals of a batch of samples, ``[n, M]``."""
        return jax.vmap(lambda *a: self.of_one(a))(*rows)

    def means_under(self, predictions: Distribution, others: Distribution) -> jax.Array:
        """E r(p, Z) with Z from `others`, ``[n, M]``."""
        probabilities = as_labels(others).label_probabilities()
        labels = lax.broadcasted_iota(jnp.int32, probabilities.shape, 1)
        return jax.vmap(dot)(probabilities, self.values(predictions, labels))

    def products_under(self, predictions: Distribution, others: Distribution) -> jax.Array:
        means = self.means_under(predictions, others)
        return dot(means, means.T)

    def in_pit_cells(self, ends: tuple[float, ...], dtype: DTypeLike) -> Self:
        """The same of a function of the PIT, looked up in a table instead of made for each draw.

        `ends` are those of the cells of the unit line, if a PIT is known no better.
        """
        return self

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return dot(self.of_one(a), self.of_one(b))

    def square(self, a: Sample) -> jax.Array:
        value = self.of_one(a)
        return dot(value, value)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return dot(a[0].numbers, b[0].numbers.T)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return RowsWithNumbers(embedded_rows(prediction_kernel, rows[0]), self.of_rows(rows))

    def finite(self, key: jax.Array, p: Distribution, y: jax.Array) -> "FiniteResidual":
        return self


#: A function of one prediction and one target that returns a vector ``[M]``.
TargetFeature = Callable[[Distribution, jax.Array], jax.Array]


@struct
class Indicators(FiniteResidual):
    """e_y - p for labels: the feature e_y has the WhiteKernel."""

    def of_one(self, a: Sample) -> jax.Array:
        return label_residual(*a)


@struct
class FeatureResidual(FiniteResidual):
    """f(p, y) - E f(p, Z) for a vector f of a prediction and a target.

    For labels the expectation is a finite sum.  For others it is the mean over targets that are
    drawn for it.  That mean is the same in all data sets: their order, and with it the level of a
    test, does not depend on its error.
    """

    feature: TargetFeature

    def of_one(self, a: Sample) -> jax.Array:
        labels, residual = labels_and_residual("FeatureKernel", *a)
        return dot(residual, jax.vmap(lambda label: self.feature(a[0], label))(labels))

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        return dot(self.of_one(a), self.feature(*location))

    def values(
        self, predictions: Distribution, targets: jax.Array, others: PyTree = None
    ) -> jax.Array:
        of_targets = jax.vmap(self.feature, (None, 0))

        def of_labels(p: Labels, labels: jax.Array) -> jax.Array:
            table = of_targets(p, all_labels(p))
            probabilities = p.label_probabilities()
            # A feature such as log p(y) may be infinite at labels that never occur.
            possible = fast_where(probabilities[:, None] > 0, table, 0.0)
            return _difference(rows_of(table, labels), dot(probabilities, possible))

        def of_drawn(p: Distribution, targets: jax.Array, others: jax.Array) -> jax.Array:
            return _difference(of_targets(p, targets), jnp.mean(of_targets(p, others), axis=0))

        if isinstance(predictions, Labels):
            return jax.vmap(of_labels)(predictions, targets)
        return jax.vmap(of_drawn)(predictions, targets, others)


@struct
class RowOfTable:
    """The feature f(y) that is row y of a table."""

    table: jax.Array

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        return self.table[y]


def _difference(values: jax.Array, mean: jax.Array) -> jax.Array:
    """f - E f for values ``[D, M]``, and 0 where it is below its rounding error."""
    residuals = values - mean[None]
    rounding = ROUNDINGS_OF_TERMS * jnp.finfo(values.dtype).eps * jnp.abs(values)
    return fast_where(jnp.abs(residuals) <= rounding, 0.0, residuals)


def labels_and_residual(kernel: str, p: Distribution, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All labels, and e_y - p; `kernel` is the name of a type in an error."""
    if not isinstance(p, Labels):
        raise NotImplementedError(
            f"h with a joint kernel of type {kernel} needs predictions over finitely many labels "
            f"(Categorical, Bernoulli), got {type(p).__name__}; use a TensorProduct, or sums and "
            "multiples of them."
        )
    return all_labels(p), label_residual(p, y)


def root_of_kernel(kernel: KernelLike, p: Labels) -> jax.Array:
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


# The number of frequencies of a kernel of numbers, and of a kernel of vectors.
_FREQUENCIES, _VECTOR_FREQUENCIES = 8, 32
# The number of draws for each frequency of a kernel of numbers that is kept, at even ranks.
_DRAWS_PER_FREQUENCY = 64


@struct
class FourierFeatures:
    """The features a cos(<v, y>) and a sin(<v, y>) for frequencies v and amplitudes a."""

    frequencies: jax.Array
    amplitudes: jax.Array

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        angles = dot(self.frequencies, jnp.atleast_1d(y).astype(self.frequencies.dtype))
        return (self.amplitudes[None] * jnp.stack([jnp.cos(angles), jnp.sin(angles)])).ravel()


def draw_fourier_features(
    key: jax.Array, kernel: KernelLike, y: jax.Array, dtype: DTypeLike
) -> FourierFeatures:
    """Features of a target kernel; TypeError if the frequencies of a part are not known."""
    terms = sum_of_products(kernel)
    size = _VECTOR_FREQUENCIES if y.ndim else _FREQUENCIES
    frequencies, amplitudes = [], []
    for term_key, (factor, kernels) in zip(jax.random.split(key, len(terms)), terms, strict=True):
        frequencies.append(_frequencies(term_key, kernels, y, dtype, size))
        amplitudes.append(jnp.full(size, jnp.sqrt(jnp.asarray(times(factor, 1.0), dtype) / size)))
    return FourierFeatures(jnp.concatenate(frequencies), jnp.concatenate(amplitudes))


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
    total = functools.reduce(jnp.add, draws)
    if y.ndim:
        return total
    # The sign of a frequency does not matter.
    ordered = jnp.sort(jnp.abs(total))
    return ordered[_DRAWS_PER_FREQUENCY // 2 :: _DRAWS_PER_FREQUENCY, None]


def target_frequencies(
    kernel: KernelLike, key: jax.Array, n: int, y: jax.Array, dtype: DTypeLike
) -> jax.Array:
    """n frequencies of a target kernel, in the shape of the target y."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            "random features need a target kernel such as GaussianKernel, or WhiteKernel for "
            f"counts, for targets that are not labels, got {describe(kernel)}."
        )
    return kernel.draw_frequencies(key, n, y, dtype)


# The number of rows whose pairs with all rows are computed at a time.
_ROWS = 64


@struct
class KernelResidual(TargetResidual):
    """k(y, .) - mu(p), for a target kernel k with known mean embeddings mu(p) = E k(Z, .)."""

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return residual_product(a[0], self.kernel, a[1], *b)

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return residual_product_tile(a[0], self.kernel, a[1], *b)

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return prepare_rows(rows[0], self.kernel, rows[1], axis)

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        (p, y), (_, z) = a, location
        value = jnp.asarray(self.kernel(y, z)).astype(jax.tree.leaves(p)[0].dtype)
        return value - mean_embedding(p, self.kernel, z)

    def products_under(self, predictions: Distribution, others: Distribution) -> jax.Array:
        if isinstance(predictions, Labels):
            gaps = as_labels(others).label_probabilities() - predictions.label_probabilities()
            if isinstance(self.kernel, WhiteKernel):
                return dot(gaps, gaps.T)
            labels = all_labels(predictions)
            values = vmap_pairs(self.kernel)(labels, labels).astype(gaps.dtype)
            return dot(dot(gaps, values), gaps.T)

        def of_row(row: tuple[Distribution, Distribution]) -> jax.Array:
            p, other = row

            def with_row(q: Distribution, other_q: Distribution) -> jax.Array:
                # Twice one product of a pair instead of its symmetric part.
                mixed = inner_product(p, self.kernel, other_q)
                own = inner_product(other, self.kernel, other_q) - mixed
                return own - (mixed - inner_product(p, self.kernel, q))

            return jax.vmap(with_row)(predictions, others)

        return lax.map(of_row, (predictions, others), batch_size=_ROWS)

    def finite(self, key: jax.Array, p: Distribution, y: jax.Array) -> FiniteResidual:
        if not isinstance(p, Labels):
            dtype = jax.tree.leaves(p)[0].dtype
            return FeatureResidual(draw_fourier_features(key, self.kernel, y, dtype))
        if isinstance(self.kernel, WhiteKernel) and p.label_probabilities().size > 2:
            return Indicators()
        return FeatureResidual(RowOfTable(root_of_kernel(self.kernel, p)))


@struct
class JointResidual(TargetResidual):
    """k((p, y), .) - E k((p, Z), .) for any kernel k on pairs and labels, by finite sums."""

    kernel: KernelLike

    inner_functions = {"kernel": "pairs"}

    def product(self, a: Sample, b: Sample) -> jax.Array:
        (p, y), (q, z) = a, b
        labels, ours = labels_and_residual(type_name(self.kernel), p, y)
        _, theirs = labels_and_residual(type_name(self.kernel), q, z)
        values = vmap_pairs(lambda y, z: self.kernel((p, y), (q, z)))(labels, labels)
        return jnp.sum(ours[:, None] * values.astype(ours.dtype) * theirs[None, :])

    def deviation(self, a: Sample, location: Sample) -> jax.Array:
        p, y = a
        labels, residual = labels_and_residual(type_name(self.kernel), p, y)
        values = jax.vmap(lambda y: self.kernel((p, y), location))(labels)
        return jnp.sum(residual * values.astype(residual.dtype))


@struct
class SteinResidual(TargetResidual):
    """(s_p(y) + grad_y) l(y, .) for the score s_p of p and a target kernel l: its mean is 0."""

    kernel: KernelLike

    inner_functions = {"kernel": "targets"}
    needs_stein_identity = True

    def product(self, a: Sample, b: Sample) -> jax.Array:
        return stein(self.kernel, with_score(a), with_score(b))

    def tile(self, a: Sample, b: Sample) -> jax.Array:
        return stein_tile(self.kernel, (a[1], a[0].numbers), (b[1], b[0].numbers))

    def prepare(self, prediction_kernel: KernelLike, rows: Sample, axis: Axis) -> Prepared:
        return RowsWithNumbers(embedded_rows(prediction_kernel, rows[0]), stein_scores(*rows))

    def finite(self, key: jax.Array, p: Distribution, y: jax.Array) -> FiniteResidual:
        dtype = jax.tree.leaves(p)[0].dtype
        return SteinFeatures(draw_fourier_features(key, self.kernel, y, dtype))


@struct
class SteinFeatures(FiniteResidual):
    """(s_p(y) + grad_y) f(y) for Fourier features f of a target kernel: its mean is 0."""

    fourier: FourierFeatures

    def of_one(self, a: Sample) -> jax.Array:
        p, y = batch_of_one(a)
        (score,) = stein_scores(p, y)
        (y,) = y.astype(score.dtype)
        values, slopes = self.fourier(p, y), jax.jacfwd(lambda y: self.fourier(p, y))(y)
        return jnp.ravel(values[:, None] * jnp.ravel(score)[None] + slopes.reshape(values.size, -1))
