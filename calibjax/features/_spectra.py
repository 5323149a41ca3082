"""Random frequencies w with E cos(<w, x - y>) = k(x, y): Bochner's theorem, kernel by kernel.

They are draws for lengthscale 1, divided by the lengthscale, so that gradients reach it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._struct import is_floating
from calibjax.kernels import (
    DistanceKernel,
    GaussianKernel,
    LaplacianKernel,
    Matern32Kernel,
    Matern52Kernel,
    TotalVariation,
    WhiteKernel,
    embedding,
    in_lengthscales,
)


def prediction_frequency(kernel: Any, key: jax.Array, p: Any, dtype: Any) -> jax.Array:
    """One frequency of a DistanceKernel, in the shape of the embedding of a prediction p."""
    if not isinstance(kernel, DistanceKernel):
        raise TypeError(
            "random features need prediction kernels that are DistanceKernels, or sums, products "
            f"and multiples of them, got {type(kernel).__name__}."
        )
    scale_key, key = jax.random.split(key)
    shape = embedding(kernel.distance, p).shape
    exponent, lengthscale = kernel.exponent, kernel.scalar_lengthscale()
    if not isinstance(kernel.distance, TotalVariation):
        # exp(-r^nu) = E exp(-a r^2), a mixture of Gaussian kernels.
        scale = jnp.sqrt(2 * _positive_stable(scale_key, exponent / 2, dtype))
        return scale * jax.random.normal(key, shape, dtype) / lengthscale
    if exponent > 1:
        raise TypeError(
            "random features need an exponent of at most 1 with TotalVariation, which gives no "
            f"positive definite kernel with others, got {exponent}."
        )
    # exp(-r^nu) = E exp(-a r), a mixture of exponentials of the L1 norm.
    scale = _positive_stable(scale_key, exponent, dtype) / 2
    return scale * jax.random.cauchy(key, shape, dtype) / lengthscale


def _positive_stable(key: jax.Array, index: float, dtype: Any) -> jax.Array:
    """A draw of a > 0 with E exp(-t a) = exp(-t^index), 0 < index <= 1.

    Kanter, Stable densities under change of scale and total variation inequalities, 1975.
    """
    if index == 1:
        return jnp.ones((), dtype)
    angle_key, exponential_key = jax.random.split(key)
    tiny = jnp.finfo(dtype).tiny
    angle = jax.random.uniform(angle_key, (), dtype, minval=tiny, maxval=jnp.pi)
    exponential = jax.random.exponential(exponential_key, (), dtype)
    # pi is rounded, and where it is rounded up its sine is negative.
    logs = [jnp.log(jnp.abs(jnp.sin(c * angle))) for c in (1 - index, 1.0, index)]
    log_power = (1 - index) * (logs[0] - jnp.log(exponential)) - logs[1]
    return jnp.exp(jnp.minimum(log_power / index + logs[2], _LARGEST_LOG))


# With frequencies of 1e10 nothing is alike anyway; what they are multiplied with must stay finite.
_LARGEST_LOG = 50.0


@functools.singledispatch
def target_frequency(kernel: Any, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    """One frequency of a target kernel, in the shape of the target y."""
    kernels = sorted(t.__name__ for t in target_frequency.registry if t is not object)
    raise TypeError(
        f"random features need a target kernel of type {', '.join(kernels)}, or sums, products and "
        f"multiples of them, where targets are no labels, got {type(kernel).__name__}."
    )


@target_frequency.register
def _gaussian(kernel: GaussianKernel, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    return in_lengthscales(kernel, jax.random.normal(key, y.shape, dtype))[0]


@target_frequency.register
def _laplacian(kernel: LaplacianKernel, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    return in_lengthscales(kernel, jax.random.cauchy(key, y.shape, dtype))[0]


@target_frequency.register
def _matern32(kernel: Matern32Kernel, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    return in_lengthscales(kernel, _student(3, key, y.shape, dtype))[0]


@target_frequency.register
def _matern52(kernel: Matern52Kernel, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    return in_lengthscales(kernel, _student(5, key, y.shape, dtype))[0]


@target_frequency.register
def _white(kernel: WhiteKernel, key: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    if is_floating(y):
        raise TypeError("random features of WhiteKernel need labels or counts, got real targets.")
    # The mean of exp(i v k) over the circle is 0 for all integers k but 0.
    return jax.random.uniform(key, y.shape, dtype, minval=-jnp.pi, maxval=jnp.pi)


def _student(freedom: int, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """One draw of the multivariate t distribution."""
    normal_key, key = jax.random.split(key)
    squares = jnp.square(jax.random.normal(key, (freedom,), dtype))
    return jax.random.normal(normal_key, shape, dtype) / jnp.sqrt(jnp.mean(squares))
