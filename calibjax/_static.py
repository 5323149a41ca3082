"""Users' functions in the structure of a pytree, compared by what they compute.

jax finds a compiled function again by the structure of its arguments.  If users' functions in that
structure were compared by identity, a function that is made anew in a loop would be compiled each
time, and a function whose closure has changed in place would be answered with an old result.
"""

import functools
import sys
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import numpy as np


@jax.tree_util.register_pytree_node_class
class StaticFunction:
    """A function that is part of the structure: a pytree without leaves.

    Two are equal if their code, defaults, closures and the globals that they use are.  What they
    refer to is looked at when the StaticFunction is made: a later change makes another one.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._key = _snapshot(function, {}, getattr(function, "__globals__", None))
        self._hash = hash(self._key)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticFunction) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.function)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticFunction, (self.function,)

    def tree_flatten(self) -> tuple[tuple[()], "StaticFunction"]:
        return (), self

    @classmethod
    def tree_unflatten(cls, structure: "StaticFunction", _: Any) -> "StaticFunction":
        return structure


def with_static_functions(value: Any, name: str = "a function") -> Any:
    """A plain function as a StaticFunction, a method of a pytree as a Partial over the pytree.

    Everything else is returned as it is.  Of a Partial, only the function is looked at; `name` says
    in an error what `value` is.
    """
    if isinstance(value, jax.tree_util.Partial):
        function = with_static_functions(value.func, name)
        return jax.tree_util.Partial(function, *value.args, **value.keywords)
    if not is_plain_function(value):
        return value
    if isinstance(value, types.MethodType) and is_pytree(value.__self__):
        return jax.tree_util.Partial(StaticFunction(value.__func__), value.__self__)
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    if _may_change_unseen(owner):
        kind = type(owner).__name__
        what = f"a method of {kind}" if owner is not value else kind
        raise TypeError(
            f"{name} must not be {what}, an object whose attributes may change after it has been "
            "compiled: pass jax.tree_util.Partial(function, parameters), or make "
            f"{kind} a pytree, for example with jax.tree_util.register_dataclass."
        )
    return StaticFunction(value)


def is_plain_function(value: Any) -> bool:
    """Whether `value` is a callable that has no leaves to trace."""
    return callable(value) and not is_pytree(value)


def is_pytree(value: Any) -> bool:
    """Whether `value` is a registered container and no leaf."""
    return not jax.tree_util.all_leaves([value])


def _may_change_unseen(value: Any) -> bool:
    """Whether `value` is an object with state that equality does not see."""
    if isinstance(value, (*_FUNCTIONS, *_BY_IDENTITY)) or hasattr(value, "__wrapped__"):
        return False
    return bool(_state(value)) and not _is_frozen(value) and not _has_equality_by_value(value)


_FUNCTIONS = types.FunctionType, functools.partial
_BY_IDENTITY = type, types.ModuleType, types.BuiltinFunctionType
_LITERALS = type(None), bool, int, float, complex, str, bytes


class _Same:
    """Equal to nothing but itself; holds the object, so that its identity is not given again."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _snapshot(value: Any, seen: dict[int, tuple[int, Any]], home: Any) -> Hashable:
    """What `value` holds at this moment.

    Functions of other modules than `home`, the globals of the function that was asked about, are
    compared by identity if they can be imported: nobody changes them.  `seen` has the objects that
    were met, which may refer to themselves.
    """
    if isinstance(value, _LITERALS):
        return type(value), repr(value)  # -0.0 is not 0.0, and nan is nan
    if id(value) in seen:
        return "seen", seen[id(value)][0]
    seen[id(value)] = len(seen), value

    def all_of(values: Any) -> tuple[Hashable, ...]:
        return tuple(_snapshot(x, seen, home) for x in values)

    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            "a function closes over a traced value; pass that value to the function as "
            " jax.tree_util.Partial(function, value) instead."
        )
    if isinstance(value, jax.Array) or isinstance(value, _BY_IDENTITY):
        return _Same(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.ndarray, value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, types.FunctionType):
        if value.__globals__ is not home and _can_be_imported(value):
            return _Same(value)
        parts = value.__defaults__, value.__kwdefaults__, vars(value)
        return value.__code__, *all_of(parts), *all_of(_referred_to(value))
    if isinstance(value, types.MethodType):
        return types.MethodType, *all_of((value.__func__, value.__self__))
    if isinstance(value, functools.partial):
        return type(value), *all_of((value.func, value.args, value.keywords))
    if isinstance(value, dict):
        return type(value), *all_of(item for pair in value.items() for item in pair)
    if is_pytree(value):
        leaves, structure = jax.tree.flatten(value)
        return structure, *all_of(leaves)
    if _has_equality_by_value(value):
        return type(value), value
    return type(value) if _is_frozen(value) else _Same(value), *all_of([_state(value)])


def _state(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def _is_frozen(value: Any) -> bool:
    parameters = getattr(value, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen


def _has_equality_by_value(value: Any) -> bool:
    if type(value).__eq__ is object.__eq__ or type(value).__hash__ is None:
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _can_be_imported(function: types.FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    return getattr(module, function.__qualname__, None) is function


def _referred_to(function: types.FunctionType) -> Iterator[Any]:
    """What is in the closure of a function, and the globals that it and functions in it name."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
