"""Kernels and distances that came from the user, checked.

Types, domains and parameters are those that the classes state.  What a user's own function returns
is found by abstract evaluation of one pair, once for each structure.
"""

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from calibjax._check import check_values
from calibjax._struct import (
    PyTree,
    is_array,
    is_traced,
    on_host,
    unwrapped,
)
from calibjax.kernels._base import Kernel
from calibjax.kernels._distance import Distance

#: A function in a kernel: its name, the function, and its domain or role.
Part = tuple[str, PyTree, str]


def functions_in(function: PyTree, name: str = "kernel", role: str = "pairs") -> Iterator[Part]:
    """A kernel, a distance or another function, and then all functions that it is made of."""
    yield name, function, role
    for field, inner_role in getattr(function, "inner_functions", {}).items():
        owner = "" if isinstance(function, Kernel) else f" of {type(function).__name__}"
        yield from functions_in(getattr(function, field), field + owner, inner_role or role)


def check_kernel(kernel: Callable[..., Any], name: str = "kernel", role: str = "pairs") -> None:
    """Checks the types, domains and parameters of a kernel and of all functions in it.

    It is a kernel on "pairs", "predictions" or "targets", or has the role "a distance".
    """
    for part_name, function, part_role in functions_in(kernel, name, role):
        _check_type(part_name, function, part_role)
        for parameter, constraint in getattr(function, "parameter_constraints", {}).items():
            value, words = getattr(function, parameter), constraint.words
            of_owner = f"{parameter} of {type(function).__name__}"
            if value is None:  # The class knows a value for it.
                continue
            if not (isinstance(value, (int, float)) if constraint.is_static else is_array(value)):
                raise TypeError(f"{of_owner} must be {words}, got {type(value).__name__}.")
            if not is_traced(value):
                check_values(of_owner, value, words, constraint.is_valid(on_host(value)))


_DOMAINS = "pairs", "predictions", "targets"
#: What a function of other roles must be, in words, and what it must not be.
_KINDS: dict[str, tuple[str, type | tuple[()]]] = {
    "a distance": ("a distance between predictions", Kernel),
    "an embedding": ("a function", ()),
    "a feature": ("a function", ()),
}


def _check_type(name: str, function: Callable[..., Any], role: str) -> None:
    """A TypeError unless a function has the type and the domain of its role."""
    plain, actual = unwrapped(function), type(function).__name__
    if isinstance(plain, type) and issubclass(plain, (Kernel, Distance)):
        raise TypeError(
            f"{name} must be an instance, got the class {plain.__name__}: call it, "
            f"{plain.__name__}(…)."
        )
    what, others = _KINDS.get(role, ("a kernel or a callable", Distance))
    if not callable(function) or isinstance(function, others):
        raise TypeError(f"{name} must be {what}, got {actual}.")
    if isinstance(function, Kernel) and role in _DOMAINS and function.domain not in (None, role):
        raise TypeError(
            f"{name} must be a kernel on {role}, got {actual}, a kernel on {function.domain}; "
            "TensorProduct(prediction_kernel, target_kernel) is on pairs of both."
        )


def users_functions(kernel: PyTree, name: str = "kernel", role: str = "pairs") -> list[Part]:
    """The functions in a kernel that are not the library's."""
    found = []
    for part in functions_in(kernel, name, role):
        function = unwrapped(part[1])
        definition = function if isinstance(function, FunctionType) else type(function)
        is_ours = definition.__module__.partition(".")[0] == __name__.partition(".")[0]
        if callable(function) and not is_ours:
            found.append(part)
    return found
