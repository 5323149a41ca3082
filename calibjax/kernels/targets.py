"""Kernels on targets: labels, real numbers, vectors."""

import math
from abc import abstractmethod

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.struct import is_floating, struct
from calibjax._loops.random_numbers import cauchy_of, normal_of, uniform_numbers
from calibjax._numbers.derivatives import absolute, safe_sqrt
from calibjax._numbers.validity import POSITIVE, valid_or_nan
from calibjax.kernels.base import Kernel


@struct
class LengthscaleKernel(Kernel):
    """A kernel of real numbers or vectors in units of a lengthscale, which is at most 1."""

    lengthscale: ArrayLike

    domain = "targets"
    parameter_constraints = {"lengthscale": POSITIVE}

    def upper_bound(self) -> float:
        """1."""
        return 1.0

    def draw_frequencies(
        self, key: jax.Array, n: int, point: jax.Array, dtype: DTypeLike
    ) -> jax.Array:
        """n random w with E cos(<w, x - y>) = k(x, y), in the shape of a target."""
        w = self.unit_draws(key, (n, *point.shape), dtype)
        return jax.vmap(lambda w: in_lengthscales(self, w)[0])(w)

    @abstractmethod
    def unit_draws(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        """Frequencies of the kernel with lengthscale 1, along the first axis."""


def in_lengthscales(kernel: LengthscaleKernel, *values: jax.Array) -> list[jax.Array]:
    """Values in units of the kernel's lengthscale; integers become real numbers.

    An invalid lengthscale gives NaN, and a ValueError where it can be checked.
    """
    shape = jnp.shape(kernel.lengthscale)
    for value in values:
        if shape and shape != value.shape:
            raise ValueError(
                f"lengthscale of {type(kernel).__name__} must be a scalar or have the shape of "
                f"one target, {list(value.shape)}, got shape {list(shape)}."
            )
    scale = valid_or_nan(POSITIVE, kernel.lengthscale, f"lengthscale of {type(kernel).__name__}")
    return [(x if is_floating(x) else x.astype(jnp.result_type(scale))) / scale for x in values]


@struct
class GaussianKernel(LengthscaleKernel):
    """exp(-|x - y|^2 / (2 l^2)), for real numbers or vectors.

    Class labels count as numbers, here and in all kernels with a lengthscale: labels 0 and 1 are
    more alike than 0 and 2.  That suits ordered classes; WhiteKernel suits all others.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.GaussianKernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.6065
    """

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = in_lengthscales(self, x, y)
        return jnp.exp(-jnp.sum(jnp.square(x - y)) / 2)

    def unit_draws(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return normal_of(uniform_numbers(key, shape, dtype))


@struct
class LaplacianKernel(LengthscaleKernel):
    """exp(-sum_c |x_c - y_c| / l_c), for real numbers or vectors (the L1 norm).

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.LaplacianKernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.3679
    """

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        x, y = in_lengthscales(self, x, y)
        return jnp.exp(-jnp.sum(absolute(x - y)))

    def unit_draws(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return cauchy_of(uniform_numbers(key, shape, dtype))


@struct
class Matern32Kernel(LengthscaleKernel):
    """(1 + r) exp(-r) with r = sqrt(3) |x - y| / l, for real numbers or vectors.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.Matern32Kernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.4834
    """

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return _matern32_of_square(3 * _squared_distance(self, x, y))

    def unit_draws(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return _student(3, key, shape, dtype)


@struct
class Matern52Kernel(LengthscaleKernel):
    """(1 + r + r^2 / 3) exp(-r) with r = sqrt(5) |x - y| / l, for real numbers or vectors.

    Args:
        lengthscale: l > 0, a scalar or one for each coordinate ``[d]``; in units of the targets.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> float(cj.Matern52Kernel(lengthscale=2.0)(jnp.array(0.0), jnp.array(2.0)))
        0.5240
    """

    def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return _matern52_of_square(5 * _squared_distance(self, x, y))

    def unit_draws(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return _student(5, key, shape, dtype)


def _squared_distance(kernel: LengthscaleKernel, x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = in_lengthscales(kernel, x, y)
    return jnp.sum(jnp.square(x - y))


# The kernels of Matern are twice differentiable where x = y, but their distance r is not.  The
# rules below take derivatives in t = r^2 instead, which are finite at 0: with dr/dt = 1 / (2 r),
# that of (1 + r) exp(-r) is -exp(-r) / 2, and that of (1 + r + r^2 / 3) exp(-r) is
# -(1 + r) exp(-r) / 6.


@jax.custom_jvp
def _matern32_of_square(t: jax.Array) -> jax.Array:
    r = safe_sqrt(t)
    return (1 + r) * jnp.exp(-r)


# The derivative of this one, 1 / (4 r) at a small r, only occurs times r^2.
_matern32_of_square.defjvps(lambda change, _, t: -jnp.exp(-safe_sqrt(t)) / 2 * change)


@jax.custom_jvp
def _matern52_of_square(t: jax.Array) -> jax.Array:
    r = safe_sqrt(t)
    return (1 + r + t / 3) * jnp.exp(-r)


_matern52_of_square.defjvps(lambda change, _, t: -_matern32_of_square(t) / 6 * change)


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

    def upper_bound(self) -> float:
        """1."""
        return 1.0

    def draw_frequencies(
        self, key: jax.Array, n: int, point: jax.Array, dtype: DTypeLike
    ) -> jax.Array:
        """n random w with E cos(<w, x - y>) = k(x, y) for labels and counts."""
        if is_floating(point):
            raise TypeError("random features of WhiteKernel need labels or counts, got real ones.")
        # The mean of exp(i w k) over the circle is 0 for all integers k but 0.
        return 2 * jnp.pi * (uniform_numbers(key, (n, *point.shape), dtype) - 0.5)


def _student(freedom: int, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Draws of the multivariate t distribution, the frequencies of Matern kernels."""
    n, size = shape[0], math.prod(shape[1:])
    normal = normal_of(uniform_numbers(key, (n, freedom + size), dtype))
    scale = jnp.sqrt(jnp.mean(jnp.square(normal[:, :freedom]), axis=1, keepdims=True))
    return (normal[:, freedom:] / scale).reshape(shape)
