"""Features of a target kernel: vectors f(y) with <f(y), f(z)> = k_Y(y, z), or nearly so."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._distribution import Distribution
from calibjax._numbers import dot, eigh_of_kernel
from calibjax._struct import batch_of_one, struct, type_name
from calibjax.discrepancy import (
    EmbeddedTarget,
    FeatureResidual,
    PITResidual,
    SteinResidual,
    TargetResidual,
)
from calibjax.expectations import all_labels
from calibjax.features._random_features import sum_arrays
from calibjax.features._residuals import (
    CentredFeature,
    DrawnFeature,
    Feature,
    Indicators,
    LabelFeature,
    PITFeature,
)
from calibjax.features._spectra import target_frequency
from calibjax.kernels import (
    KernelLike,
    WhiteKernel,
    pairwise,
    stein_scores,
    sum_of_products,
    times,
)

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
        return PITFeature(residual.feature)
    if isinstance(residual, FeatureResidual):
        feature = residual.feature
        return LabelFeature(feature) if p.has_labels else DrawnFeature(feature)
    if not isinstance(residual, EmbeddedTarget):
        raise TypeError(f"a joint kernel has no feature of targets, got {type_name(residual)}.")
    if not p.has_labels:
        return DrawnFeature(_draw_fourier_features(key, residual.kernel, y, dtype))
    if isinstance(residual.kernel, WhiteKernel) and p.label_probabilities().size > 2:
        return Indicators()
    return LabelFeature(_RowOf(_root(residual.kernel, p)))


@struct
class _RowOf:
    """The feature f(y) that is row y of a table."""

    table: jax.Array

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        return self.table[y]


def _root(kernel: KernelLike, p: Distribution) -> jax.Array:
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
        jax.vmap(lambda k, kernel=kernel: target_frequency(kernel, k, y, dtype))(keys)
        for kernel, keys in zip(
            kernels, jax.random.split(key, (len(kernels), n_draws)), strict=True
        )
    ]
    total = sum_arrays(draws)
    if y.ndim:
        return total
    # The sign of a frequency does not matter.
    ordered = jnp.sort(jnp.abs(total))
    return ordered[_DRAWS_PER_FREQUENCY // 2 :: _DRAWS_PER_FREQUENCY, None]
