"""Residuals of kernels: of targets, by Stein's identity, and of kernels that are not products.

Their features have infinitely many numbers, and inner products in closed form.
Random Fourier features of target kernels stand for them in sums over rows.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis
from calibjax._base.struct import batch_of_one, struct, type_name
from calibjax._data.distribution import Distribution, Labels, as_labels
from calibjax._numbers.arithmetic import dot
from calibjax.expectations import inner_product, mean_embedding
from calibjax.expectations.dispatch import prepare_rows, residual_product, residual_product_tile
from calibjax.expectations.finite_sums import all_labels
from calibjax.kernels import WhiteKernel
from calibjax.kernels.base import (
    Kernel,
    KernelLike,
    Sample,
    describe,
    sum_of_products,
    times,
    vmap_pairs,
)
from calibjax.kernels.predictions import embedded_rows
from calibjax.kernels.stein import stein, stein_scores, stein_tile, with_score
from calibjax.residuals.base import (
    FeatureResidual,
    FiniteResidual,
    Indicators,
    Prepared,
    RowOfTable,
    RowsWithNumbers,
    TargetResidual,
    labels_and_residual,
    root_of_kernel,
)

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
        fourier = jnp.stack([jnp.cos(angles), jnp.sin(angles)])
        return (self.amplitudes[None] * fourier).ravel()


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
        predictions = embedded_rows(prediction_kernel, rows[0])
        return RowsWithNumbers(predictions, stein_scores(*rows))

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
