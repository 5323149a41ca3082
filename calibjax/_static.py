"""Users' functions in the structure of a pytree, compared by what they compute.

jax looks compiled code up by the structure of the arguments.  If it compared users' functions by
identity, a function that a loop defines again and again would be compiled each time, and a function
whose closure has changed in place would get an outdated result.
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

    Two StaticFunctions are equal if their code, defaults, closures and the globals that they use
    are equal.  These are read when a StaticFunction is made; a StaticFunction that is made after a
    change is not equal to it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._key = _snapshot(function, {}, _globals_of(function))
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

    The function of a Partial is converted in the same way, and everything else is returned as it
    is.  `name` stands for `value` in an error.
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
    """Whether `value` is an object whose state can change without changing its equality."""
    if isinstance(value, (*_FUNCTIONS, *_COMPARED_BY_IDENTITY)) or hasattr(value, "__wrapped__"):
        return False
    return bool(_state(value)) and not _is_frozen(value) and not _has_equality_by_value(value)


_FUNCTIONS = types.FunctionType, functools.partial
_COMPARED_BY_IDENTITY = type, types.ModuleType, types.BuiltinFunctionType
_LITERALS = type(None), bool, int, float, complex, str, bytes


class _ByIdentity:
    """Compares an object by identity; it keeps the object alive, so that no other gets its id."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _snapshot(value: Any, seen: dict[int, tuple[int, Any]], home: Any) -> Hashable:
    """A hashable copy of `value` and of everything that it refers to.

    `home` is the globals of the function whose snapshot is made.  Functions of other modules are
    compared by identity if they can be imported, because nobody changes them.  `seen` numbers the
    objects on the way, so that cycles of references end.
    """
    if isinstance(value, _LITERALS):
        return type(value), repr(value)  # repr tells -0.0 from 0.0, and is equal for two NaNs
    if id(value) in seen:
        return "seen", seen[id(value)][0]
    seen[id(value)] = len(seen), value

    def all_of(values: Any) -> tuple[Hashable, ...]:
        return tuple(_snapshot(x, seen, home) for x in values)

    if isinstance(value, jax.Array) or isinstance(value, _COMPARED_BY_IDENTITY):
        return _ByIdentity(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.ndarray, value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, types.FunctionType):
        if value.__globals__ is not home and _can_be_imported(value):
            return _ByIdentity(value)
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
    return type(value) if _is_frozen(value) else _ByIdentity(value), *all_of([_state(value)])


def _globals_of(function: Any) -> Any:
    """The globals of a function, also of one that a partial application wraps."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__globals__", None)


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
    """The values in the closure of a function, and the globals named in its code."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]


def _names(code: types.CodeType) -> Iterator[str]:
    """The names in the code of a function and of the functions defined in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
