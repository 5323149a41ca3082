"""Kernels of one pair of points, their algebra, and how pairs become tiles.

The formula of a kernel or a distance is final: what is registered for a class, such as closed
forms, would be wrong for another function.
"""

import dataclasses
import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.struct import (
    PyTree,
    as_pytree,
    is_array,
    is_floating,
    is_traced,
    struct,
    type_name,
)
from calibjax._numbers.validity import NONNEGATIVE, Constraint, scalar_or_nan


def check_final(cls: type, formulas: Sequence[str], known: Sequence[str]) -> None:
    """A TypeError for a class that overrides what is final in another class.

    The `formulas` of a class are final, and so are the methods `known`, which compute the same
    function in another way: they belong to the class that has the formula.  Closed forms and other
    rules that are registered for a class would be wrong for another function.
    """
    for method in formulas:
        if len(authors := _authors(cls, method)) > 1:
            raise _is_final(method, authors[1], cls)
    order = cls.__mro__
    ranks = [order.index(x) for method in formulas for x in _authors(cls, method)]
    if any(_is_abstract(getattr(cls, method, None)) for method in formulas):
        return  # The class is still abstract.
    for method in known:
        if any(method in vars(base) for base in order[: min(ranks)]):
            raise _is_final(method, order[min(ranks)], cls)


def _authors(cls: type, method: str) -> list[type]:
    """The classes with the method, not as an abstract one, the most derived one first."""
    return [x for x in cls.__mro__ if method in vars(x) and not _is_abstract(vars(x)[method])]


def _is_abstract(method: object) -> bool:
    return getattr(method, "__isabstractmethod__", False)


def _is_final(method: str, author: type, cls: type) -> TypeError:
    return TypeError(
        f"{method} of {author.__name__} is final, and {cls.__name__} must not override it with "
        f"another function: derive {cls.__name__} from calibjax.Kernel or calibjax.Distance, "
        f"and let it hold {author.__name__} in a field if it needs one."
    )


Values = TypeVar("Values")
Factor = TypeVar("Factor", jax.Array, jax.Array | None, ArrayLike)


def vmap_pairs(function: Callable[[Any, Any], Values]) -> Callable[[Any, Any], Values]:
    """Turns a function of one pair into a function of all pairs of two batches, ``[S, T]``."""
    return jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, None))


def hold_functions(owner: Any) -> None:
    """Makes a pytree of a kernel or distance with users' functions in its fields."""
    for field in owner.inner_functions:
        function = as_pytree(getattr(owner, field), f"{field} of {type(owner).__name__}")
        vars(owner)[field] = function


class Kernel(ABC):
    """A positive definite function of one pair of points.

    Kernels add and multiply, and scale by a nonnegative number.  A kernel of your own is a pytree
    with ``__call__(x, y)``, a scalar.  The other methods are what a class knows about this
    function.  It is final, with ``pairwise`` and ``draw_frequencies``: another function needs its
    own subclass of Kernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = 2.0 * cj.GaussianKernel(1.0) + cj.LaplacianKernel(1.0)
        >>> isinstance(kernel, cj.Kernel), float(kernel(jnp.array(0.0), jnp.array(0.0)))
        (True, 3.0)
    """

    #: Where the kernel is defined: "predictions", "targets", or "pairs" of both.
    domain: ClassVar[str | None] = None
    #: What its parameters must be, by the names of their fields.
    parameter_constraints: ClassVar[Mapping[str, Constraint]] = {}
    #: The functions it contains: the name of the field, and the domain or role of each; None means
    #: the domain of the kernel itself.
    inner_functions: ClassVar[Mapping[str, str | None]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_final(cls, ("__call__",), ("pairwise", "draw_frequencies"))

    #: Checks and converts the fields; jax rebuilds kernels without it.
    _complete = hold_functions

    @abstractmethod
    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """k(x, y), a scalar."""

    def pairwise(self, xs: PyTree, ys: PyTree) -> jax.Array:
        """k(x, y) for all pairs of two batches, ``[S, T]``."""
        return vmap_pairs(self)(xs, ys)

    def upper_bound(self) -> float | jax.Array:
        """K such that 0 <= k <= K everywhere; ValueError if nothing is known about it."""
        raise _no_bound(self)

    def draw_frequencies(
        self, key: jax.Array, n: int, point: jax.Array, dtype: DTypeLike
    ) -> jax.Array:
        """n random w with E cos(<w, x - y>) = k(x, y) (Bochner's theorem), in the shape of a point.

        They are drawn for lengthscale 1 and divided by the lengthscale, so that gradients reach it.
        A kernel on predictions takes their embedding for the point.
        """
        raise TypeError(
            "random features need kernels with known frequencies, or sums, products and multiples "
            f"of them, got {type(self).__name__}."
        )

    def __add__(self, other: "KernelLike") -> "Kernel":
        return Sum(self, other) if callable(other) else NotImplemented

    def __radd__(self, other: "KernelLike") -> "Kernel":
        return Sum(other, self) if callable(other) else NotImplemented

    def __mul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Product(self, other) if callable(other) else Scaled(other, self)

    def __rmul__(self, other: "KernelLike | ArrayLike") -> "Kernel":
        return Product(other, self) if callable(other) else Scaled(other, self)


#: A prediction and a target, the points of kernels on pairs.
Sample = tuple[PyTree, jax.Array]
#: What a kernel may be: an object of ours, or any function of two points, which are numbers,
#: arrays, one prediction of some family, or tuples of these.
KernelLike = Kernel | Callable[[Any, Any], jax.Array]


def pairwise(kernel: KernelLike, xs: PyTree, ys: PyTree) -> jax.Array:
    """kernel(x, y) for all pairs, ``[S, T]``: by the kernel's own `pairwise` if it has one."""
    tile = getattr(kernel, "pairwise", None)
    values = tile(xs, ys) if tile is not None else vmap_pairs(kernel)(xs, ys)
    return in_dtype_of(values, (xs, ys))


def kernel_value(kernel: KernelLike, x: PyTree, y: PyTree) -> jax.Array:
    """kernel(x, y) of one pair, in its dtype: the function may hold constants of another one."""
    return in_dtype_of(kernel(x, y), (x, y))


def in_dtype_of(values: jax.Array, points: PyTree) -> jax.Array:
    """Values in the floating dtype of the points, if these are not integers."""
    floating = list(filter(is_floating, jax.tree.leaves(points)))
    return jnp.asarray(values).astype(jnp.result_type(*floating)) if floating else values


def upper_bound(kernel: KernelLike) -> float | jax.Array:
    """K such that 0 <= k <= K everywhere; ValueError for a kernel that nothing is known about."""
    if not isinstance(kernel, Kernel):
        raise _no_bound(kernel)
    return kernel.upper_bound()


def _no_bound(kernel: "KernelLike") -> ValueError:
    return ValueError(
        f"kernel_bound must be given: no bound is known for a kernel of type {type_name(kernel)}."
    )


@struct
class KernelOfTwo(Kernel):
    """Two kernels, whose values are combined."""

    left: KernelLike
    right: KernelLike

    inner_functions = {"left": None, "right": None}
    combine: ClassVar[Callable[[Any, Any], Any]]

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        return type(self).combine(kernel_value(self.left, x, y), kernel_value(self.right, x, y))

    def pairwise(self, xs: PyTree, ys: PyTree) -> jax.Array:
        return type(self).combine(pairwise(self.left, xs, ys), pairwise(self.right, xs, ys))

    def upper_bound(self) -> float | jax.Array:
        return type(self).combine(upper_bound(self.left), upper_bound(self.right))


class Sum(KernelOfTwo):
    """left(x, y) + right(x, y)."""

    combine = operator.add


class Product(KernelOfTwo):
    """left(x, y) right(x, y)."""

    combine = operator.mul


@struct
class Scaled(Kernel):
    """factor kernel(x, y), with factor >= 0."""

    factor: ArrayLike
    kernel: KernelLike

    parameter_constraints = {"factor": NONNEGATIVE}
    inner_functions = {"kernel": None}

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        return self.valid_factor() * kernel_value(self.kernel, x, y)

    def pairwise(self, xs: PyTree, ys: PyTree) -> jax.Array:
        return self.valid_factor() * pairwise(self.kernel, xs, ys)

    def upper_bound(self) -> float | jax.Array:
        return self.valid_factor() * upper_bound(self.kernel)

    def valid_factor(self) -> jax.Array:
        """The factor, NaN if it is invalid; ValueError unless it is a scalar."""
        return scalar_or_nan(NONNEGATIVE, self.factor, "factor of Scaled")


def sum_of_products(kernel: KernelLike) -> list[tuple[jax.Array | None, list[KernelLike]]]:
    """The kernel multiplied out: for each summand its factor, None for 1, and the kernels in it."""
    if isinstance(kernel, Sum):
        return sum_of_products(kernel.left) + sum_of_products(kernel.right)
    if isinstance(kernel, Scaled):
        factor = kernel.valid_factor()
        return [(times(factor, f), kernels) for f, kernels in sum_of_products(kernel.kernel)]
    if isinstance(kernel, Product):
        pairs = itertools.product(sum_of_products(kernel.left), sum_of_products(kernel.right))
        return [(times(f, g), ours + theirs) for (f, ours), (g, theirs) in pairs]
    return [(None, [kernel])]


def times(a: jax.Array | None, b: Factor) -> Factor:
    """a b, where None stands for 1."""
    return b if a is None else a if b is None else a * b


def describe(node: PyTree) -> str:
    """A kernel, distance or feature as text: names of classes and functions, and their numbers.

    Parameters that have their default value are left out, and an array shows its shape.  An object
    with a `description` is described by it.
    """
    if is_array(node):
        if is_traced(node) or np.ndim(node):
            return f"array of shape {list(jnp.shape(node))}"
        return f"{float(node):.3g}"
    description = getattr(node, "description", None)
    if isinstance(description, str):
        return description
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        values = [(getattr(node, x.name), x.default) for x in dataclasses.fields(node)]
        shown = [x for x, usual in values if not (isinstance(x, (int, float)) and x == usual)]
        return f"{type(node).__name__}({', '.join(map(describe, shown))})"
    if isinstance(node, jax.tree_util.Partial):
        return describe(node.func)
    return getattr(node, "__name__", type(node).__name__)
