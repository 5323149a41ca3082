"""Constraints on parameters of kernels and distances, and methods that an override invalidates."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from calibjax._numbers import is_nonnegative, is_positive
from calibjax._struct import is_array


class Constraint(NamedTuple):
    """A condition on a parameter.

    Args:
        has_type: tells whether a value has the right type.
        words: the condition in words, for error messages.
        is_valid: tells which elements of an array, of NumPy or of jax, satisfy the condition.
    """

    has_type: Callable[[Any], bool]
    words: str
    is_valid: Callable[[Any], Any]


def _is_python_number(x: Any) -> bool:
    return isinstance(x, (int, float))


POSITIVE = Constraint(is_array, "positive and finite", is_positive)
NONNEGATIVE = Constraint(is_array, "nonnegative and finite", is_nonnegative)
#: Points ``[M, …]``.
FINITE_POINTS = Constraint(
    is_array, "finite, and at least one", lambda x: np.isfinite(x).all() & (np.size(x) > 0)
)
#: An exponent is part of the structure, which must not hold arrays.
EXPONENT = Constraint(_is_python_number, "a Python number in (0, 2]", lambda x: (x > 0) & (x <= 2))


def forget_overridden(cls: type, by: str, defaults: Mapping[str, Any]) -> None:
    """Replaces methods that `cls` inherits by defaults if `cls` overrides the method `by`.

    The inherited methods describe what the `by` of a base class computes, and would be wrong for
    the new one.
    """
    for method, default in defaults.items():
        if is_overridden(cls, method, by):
            setattr(cls, method, default)


def is_overridden(cls: type, method: str, by: str) -> bool:
    """Whether `cls` takes `by` from a subclass of the class that it takes `method` from."""
    return _depth_of_definition(cls, by) < _depth_of_definition(cls, method)


def class_of_formula(kernel: Any) -> type:
    """The class whose ``__call__`` a kernel has: for one that overrides it, no base class."""
    return type(kernel).__mro__[_depth_of_definition(type(kernel), "__call__")]


class FormulaDispatch:
    """A function of (kernel, *args) with a rule for each formula of kernels, else `fallback`.

    As `functools.singledispatch`, but by `class_of_formula`: a rule for a class does not hold for a
    subclass that overrides ``__call__``.
    """

    def __init__(self, fallback: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fallback)
        self.fallback = fallback
        self._rules = functools.singledispatch(fallback)
        self.register = self._rules.register

    def __call__(self, kernel: Any, *args: Any) -> Any:
        rule = self._rules.registry.get(class_of_formula(kernel), self.fallback)
        return rule(kernel, *args)


def _depth_of_definition(cls: type, method: str) -> int:
    """The position, among `cls` and its bases, of the class that defines `method`."""
    return next(depth for depth, base in enumerate(cls.__mro__) if method in vars(base))
