"""Kernels on targets: labels, real numbers, vectors."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._numerics import absolute, positive_or_nan, safe_sqrt
from calibjax._struct import is_floating, struct
from calibjax.kernels._base import Kernel


def in_lengthscales(kernel: Any, *values: jax.Array) -> list[jax.Array]:
    """Values in units of the kernel's lengthscale; integers become real numbers.

    A lengthscale that is not positive gives NaN.
    """
    shape = jnp.shape(kernel.lengthscale)
    for value in values:
        if shape and shape != value.shape:
            raise ValueError(
                f"lengthscale of {type(kernel).__name__} must be a scalar or have the shape of "
                f"one target, {list(value.shape)}, got shape {list(shape)}."
            )
    scale = positive_or_nan(kernel.lengthscale)
    return [(x if is_floating(x) else x.astype(jnp.result_type(scale))) / scale for x in values]


@struct
class GaussianKernel(Kernel):
    """exp(-|x - y|^2 / (2 l^2)), for real numbers or vectors.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.GaussianKernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.6065
    """

    lengthscale: Any

    domain = "targets"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = in_lengthscales(self, x, y)
        return jnp.exp(-jnp.sum(jnp.square(x - y)) / 2)


@struct
class LaplacianKernel(Kernel):
    """exp(-sum_c |x_c - y_c| / l_c), for real numbers or vectors (the L1 norm).

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.LaplacianKernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.3679
    """

    lengthscale: Any

    domain = "targets"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = in_lengthscales(self, x, y)
        return jnp.exp(-jnp.sum(absolute(x - y)))


@struct
class Matern32Kernel(Kernel):
    """(1 + r) exp(-r) with r = sqrt(3) |x - y| / l, for real numbers or vectors.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.Matern32Kernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.4834
    """

    lengthscale: Any

    domain = "targets"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        r = _distance(self, x, y) * math.sqrt(3)
        return (1 + r) * jnp.exp(-r)


@struct
class Matern52Kernel(Kernel):
    """(1 + r + r^2 / 3) exp(-r) with r = sqrt(5) |x - y| / l, for real numbers or vectors.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.Matern52Kernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.5240
    """

    lengthscale: Any

    domain = "targets"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        r = _distance(self, x, y) * math.sqrt(5)
        return (1 + r + jnp.square(r) / 3) * jnp.exp(-r)


def _distance(kernel: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = in_lengthscales(kernel, x, y)
    return safe_sqrt(jnp.sum(jnp.square(x - y)))


@struct
class WhiteKernel(Kernel):
    """1 if x = y, else 0: for labels and counts.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.WhiteKernel()(jnp.array(2), jnp.array(2)))
        1.0
    """

    domain = "targets"

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(x == y), 1.0, 0.0)
