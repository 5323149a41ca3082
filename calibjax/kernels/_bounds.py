"""Upper bounds of kernels that are never negative, derived along their algebra."""

import functools
from typing import Any

import jax

from calibjax.kernels._base import Product, Scaled, Sum
from calibjax.kernels._predictions import DistanceKernel
from calibjax.kernels._targets import (
    GaussianKernel,
    LaplacianKernel,
    Matern32Kernel,
    Matern52Kernel,
    WhiteKernel,
)
from calibjax.kernels._tensor import TensorProduct


@functools.singledispatch
def upper_bound(kernel: Any) -> float | jax.Array:
    """K such that 0 <= k <= K everywhere; ValueError for a kernel that nothing is known about."""
    raise ValueError(
        f"kernel_bound must be given: no bound is known for a kernel of type "
        f"{type(kernel).__name__}."
    )


@upper_bound.register(DistanceKernel)
@upper_bound.register(GaussianKernel)
@upper_bound.register(LaplacianKernel)
@upper_bound.register(Matern32Kernel)
@upper_bound.register(Matern52Kernel)
@upper_bound.register(WhiteKernel)
def _one(kernel: Any) -> float:
    return 1.0


@upper_bound.register
def _tensor_product(kernel: TensorProduct) -> float | jax.Array:
    return upper_bound(kernel.prediction_kernel) * upper_bound(kernel.target_kernel)


@upper_bound.register
def _product(kernel: Product) -> float | jax.Array:
    return upper_bound(kernel.left) * upper_bound(kernel.right)


@upper_bound.register
def _sum(kernel: Sum) -> float | jax.Array:
    return upper_bound(kernel.left) + upper_bound(kernel.right)


@upper_bound.register
def _scaled(kernel: Scaled) -> float | jax.Array:
    return kernel.valid_factor() * upper_bound(kernel.kernel)
