"""Random frequencies of the kernels in a tensor product: each kernel knows its own."""

import jax
from jax.typing import DTypeLike

from calibjax._distribution import Distribution
from calibjax._struct import type_name
from calibjax.kernels import DistanceKernel, Kernel, KernelLike, describe, embedding


def prediction_frequency(
    kernel: KernelLike, key: jax.Array, p: Distribution, dtype: DTypeLike
) -> jax.Array:
    """One frequency of a DistanceKernel, in the shape of the embedding of a prediction p."""
    if not isinstance(kernel, DistanceKernel):
        raise TypeError(
            "random features need prediction kernels that are DistanceKernels, or sums, products "
            f"and multiples of them, got {type_name(kernel)}."
        )
    return kernel.draw_frequency(key, embedding(kernel.distance, p), dtype)


def target_frequency(
    kernel: KernelLike, key: jax.Array, y: jax.Array, dtype: DTypeLike
) -> jax.Array:
    """One frequency of a target kernel, in the shape of the target y."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            "random features need a target kernel such as GaussianKernel, or WhiteKernel for "
            f"counts, where targets are no labels, got {describe(kernel)}."
        )
    return kernel.draw_frequency(key, y, dtype)
