"""Kernels of one pair of points, their algebra, and the one place where pairs become tiles."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from calibjax._struct import struct


def vmap_pairs(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Turns a function of one pair into a function of all pairs of two batches, ``[S, T]``."""
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, None))


def pairwise(kernel: Callable[[Any, Any], jax.Array], xs: Any, ys: Any) -> jax.Array:
    """kernel(x, y) for all pairs, ``[S, T]``: by the kernel's own `pairwise` if it has one."""
    tile = getattr(kernel, "pairwise", None)
    return tile(xs, ys) if tile is not None else vmap_pairs(kernel)(xs, ys)


class Kernel(ABC):
    """A positive definite function of one pair of points.

    Kernels add and multiply, and scale by a nonnegative number.  A kernel of your own is a pytree
    with ``__call__(x, y)``, a scalar.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = 2.0 * cj.GaussianKernel(1.0) + cj.LaplacianKernel(1.0)
        >>> isinstance(kernel, cj.Kernel), float(kernel(jnp.array(0.0), jnp.array(0.0)))
        (True, 3.0)
    """

    #: Where the kernel is defined: "predictions", "targets", or "pairs" of both.
    domain: ClassVar[str | None] = None

    @abstractmethod
    def __call__(self, x: Any, y: Any) -> jax.Array:
        """k(x, y), a scalar."""

    def __add__(self, other: Any) -> "Kernel":
        return Sum(self, other) if callable(other) else NotImplemented

    def __radd__(self, other: Any) -> "Kernel":
        return Sum(other, self) if callable(other) else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        return Product(self, other) if callable(other) else Scaled(other, self)

    def __rmul__(self, other: Any) -> "Kernel":
        return Product(other, self) if callable(other) else Scaled(other, self)


#: What a kernel may be: an object of ours, or any function of two points.
KernelLike = Kernel | Callable[[Any, Any], jax.Array]


@struct
class Sum(Kernel):
    """left(x, y) + right(x, y)."""

    left: Any
    right: Any

    def __call__(self, x: Any, y: Any) -> jax.Array:
        return self.left(x, y) + self.right(x, y)

    def pairwise(self, xs: Any, ys: Any) -> jax.Array:
        return pairwise(self.left, xs, ys) + pairwise(self.right, xs, ys)


@struct
class Product(Kernel):
    """left(x, y) right(x, y)."""

    left: Any
    right: Any

    def __call__(self, x: Any, y: Any) -> jax.Array:
        return self.left(x, y) * self.right(x, y)

    def pairwise(self, xs: Any, ys: Any) -> jax.Array:
        return pairwise(self.left, xs, ys) * pairwise(self.right, xs, ys)


@struct
class Scaled(Kernel):
    """factor kernel(x, y), with factor >= 0."""

    factor: Any
    kernel: Any

    def __call__(self, x: Any, y: Any) -> jax.Array:
        return self.valid_factor() * self.kernel(x, y)

    def pairwise(self, xs: Any, ys: Any) -> jax.Array:
        return self.valid_factor() * pairwise(self.kernel, xs, ys)

    def valid_factor(self) -> jax.Array:
        """The factor, NaN if it is negative: then this is no kernel."""
        return jnp.where(self.factor >= 0, self.factor, jnp.nan)
