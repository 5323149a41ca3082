"""Random Fourier features of target kernels."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from calibjax._base.struct import struct
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import dot
from calibjax.kernels.base import Kernel, KernelLike, describe, sum_of_products, times

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
            f"counts, where targets are no labels, got {describe(kernel)}."
        )
    return kernel.draw_frequencies(key, n, y, dtype)
