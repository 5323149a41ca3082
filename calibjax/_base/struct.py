"""Frozen dataclasses as pytrees, users' functions in them, and pytrees taken apart."""

import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import GetAttrKey, Partial
from jax.typing import ArrayLike, DTypeLike

T = TypeVar("T")

#: Arrays in nested tuples, lists, dicts and structs, or one array: whatever jax maps over.
PyTree = Any


def static(default: object = dataclasses.MISSING) -> Any:
    """A field that is part of the structure, not a leaf: hashable, and never traced."""
    return dataclasses.field(default=default, metadata={"static": True})


def outside(default: Any = None) -> Any:
    """A field that is not part of the pytree: None after any transformation of jax."""
    return dataclasses.field(default=default, metadata={"outside": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static, outside))
def struct(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree of its fields, but for `static` and `outside`.

    `eq=False` because the generated equality fails on arrays.  A subclass is a struct too, with or
    without the decorator.  A class that checks or converts its fields does so in an `__init__` of
    its own, or in a method `_complete`, which the generated `__init__` calls at the end.  jax
    rebuilds its objects without either.  A parent may have a function `complete_struct`, which is
    called with each class.
    """
    if "__dataclass_fields__" in vars(cls):  # by `make_struct` of a parent
        return cls
    # What was written for all subclasses is not replaced by what is generated.
    has_init, has_repr = _is_written("__init__", cls), _is_written("__repr__", cls)
    decorator = dataclasses.dataclass(frozen=True, eq=False, init=not has_init, repr=not has_repr)
    made: Any = decorator(cls)
    fields = dataclasses.fields(made)
    options, others = (
        [x.name for x in fields if x.metadata.get(kind)] for kind in ("static", "outside")
    )
    names = [x.name for x in fields if x.name not in (*options, *others)]
    if hasattr(made, "_complete") and not has_init:
        init = made.__init__

        @functools.wraps(init)
        def init_and_complete(self, *args, **kwargs):
            init(self, *args, **kwargs)
            self._complete()

        made.__init__ = init_and_complete
    _register(made, names, options, others)
    if hasattr(made, "complete_struct"):
        made.complete_struct(made)

    def make_struct(subclass: type, **kwargs: Any) -> None:
        super(made, subclass).__init_subclass__(**kwargs)
        struct(subclass)

    # jax knows a pytree by its very class: each subclass has to be registered too.
    made.__init_subclass__ = classmethod(make_struct)
    return made


def _is_written(method: str, cls: type) -> bool:
    """Whether the class or a parent defines the method, and no dataclass has generated it."""
    author = next(base for base in cls.__mro__ if method in vars(base))
    made_by = vars(author).get("__dataclass_params__")
    return author is not object and not getattr(made_by, method.strip("_"), False)


def _register(cls: type, names: list[str], options: list[str], others: list[str]) -> None:
    """Registers a pytree that is rebuilt without its constructor.

    The children may be tracers or placeholders, which a constructor would not take for parameters,
    and `jax.tree_util.register_dataclass` would call it.  That function also makes structures of
    two classes with the same fields equal (in jax 0.10), so that jit may take one for another.
    """
    keys = [GetAttrKey(name) for name in names]

    def flatten(instance):
        value_of = vars(instance).__getitem__
        return list(map(value_of, names)), tuple(map(value_of, options))

    def flatten_with_keys(instance):
        children, structure = flatten(instance)
        return list(zip(keys, children, strict=True)), structure

    def unflatten(structure, children):
        instance = object.__new__(cls)
        vars(instance).update(dict.fromkeys(others), **dict(zip(names, children, strict=True)))
        vars(instance).update(zip(options, structure, strict=True))
        return instance

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)


def with_fields(instance: T, **fields: Any) -> T:
    """A copy of a struct with other fields, for which its constructor is not called."""
    made = object.__new__(type(instance))
    vars(made).update(vars(instance) | fields)
    return made


def as_pytree(tree: PyTree, name: str = "a function") -> PyTree:
    """A tree that jit takes as an argument: each plain function in it becomes a Partial.

    A `jax.tree_util.Partial` has the function in its structure, where jax compares it by identity:
    a function that is defined again is compiled again.  A method of a pytree becomes a Partial over
    the pytree.  `name` stands for the function in an error.  A tree without any is the same object
    afterwards, so that kernels that share a part can be told by it.
    """

    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda x: isinstance(x, Partial))
    made = list(leaves)
    for i, leaf in enumerate(leaves):
        if callable(leaf):
            make = _with_plain_function if isinstance(leaf, Partial) else _as_partial
            made[i] = make(leaf, name)
    is_same = all(map(operator.is_, made, leaves))
    return tree if is_same else jax.tree.unflatten(structure, made)


def _with_plain_function(partial: Partial, name: str) -> Partial:
    """A user's Partial, whose function may be a method or an object, and whose arguments others."""
    function, given = partial.func, (partial.args, partial.keywords)
    made = as_pytree(given, name)
    if not jax.tree_util.all_leaves([function]):
        return partial if made is given else Partial(function, *made[0], **made[1])
    own = _as_partial(function, name)
    if made is given and own.func is function:
        return partial
    # jax would not see the leaves of a Partial of a Partial.
    return Partial(own.func, *own.args, *made[0], **made[1])


def _as_partial(function: Callable[..., Any], name: str) -> Partial:
    owner: object = function
    if isinstance(function, types.MethodType):
        owner = function.__self__
        if not jax.tree_util.all_leaves([owner]):
            return Partial(function.__func__, owner)
    if _may_change_unseen(owner):
        kind = type(owner).__name__
        what = f"a method of {kind}" if owner is not function else kind
        raise TypeError(
            f"{name} must not be {what}, an object whose attributes may change after it has been "
            "compiled: pass jax.tree_util.Partial(function, parameters), or make "
            f"{kind} a pytree, for example with jax.tree_util.register_dataclass."
        )
    return Partial(function)


def unwrapped(function: object) -> Any:
    """The plain function that `as_pytree` has made a Partial of; everything else as it is."""
    if isinstance(function, Partial) and not (function.args or function.keywords):
        return function.func
    return function


def type_name(function: object) -> str:
    """The name of the type of a kernel, a distance, or another function of the user."""
    return type(unwrapped(function)).__name__


_FUNCTIONS = types.FunctionType, types.BuiltinFunctionType, functools.partial, type


def _may_change_unseen(value: object) -> bool:
    """Whether `value` is an object whose state can change without changing its equality."""
    if isinstance(value, _FUNCTIONS) or hasattr(value, "__wrapped__"):
        return False
    parameters = getattr(value, "__dataclass_params__", None)
    is_frozen = parameters is not None and parameters.frozen
    by_identity = type(value).__eq__ is object.__eq__ or type(value).__hash__ is None
    return bool(getattr(value, "__dict__", None)) and by_identity and not is_frozen


def is_array(leaf: object) -> bool:
    """Whether `leaf` is a number or an array."""
    return isinstance(leaf, (jax.Array, bool, int, float)) or hasattr(leaf, "__array__")


def on_host(x: ArrayLike) -> np.ndarray:
    """A number or a concrete array, to look at without work for a device.

    Floating-point numbers are rounded as jax would round them.  Integers keep all of their bits:
    jax would take 2^32 + 1 for 1.
    """
    return np.asarray(x, jnp.result_type(x) if is_floating(x) else None)


def saturated(x: ArrayLike) -> ArrayLike:
    """Integers of NumPy beyond the dtype of jax as its largest or least one, all else as it is."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "iu":
        return x
    limits = np.iinfo(jnp.result_type(x))
    return np.clip(x, limits.min, limits.max)


def is_rounded(x: ArrayLike) -> bool:
    """Whether jax would round these numbers: float64 of NumPy, unless jax_enable_x64 is set."""
    return isinstance(x, np.ndarray) and x.dtype == np.float64 and jnp.result_type(x) == jnp.float32


def is_floating(leaf: ArrayLike | jax.ShapeDtypeStruct) -> bool:
    """Whether `leaf` holds floating-point numbers, so that gradients can flow to it."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def widest_dtype(*arrays: ArrayLike | jax.ShapeDtypeStruct) -> DTypeLike:
    """float64 if any array is, else float32: 16-bit numbers are computed in float32."""
    return jnp.float64 if np.dtype("float64") in map(jnp.result_type, arrays) else jnp.float32


def widened(tree: T) -> T:
    """All leaves but masks as floating-point numbers of the widest dtype, at least float32."""
    dtype = widest_dtype(*jax.tree.leaves(tree))
    return jax.tree.map(lambda x: x if x.dtype == bool else jnp.asarray(x, dtype), tree)


def repeated(tree: T, shape: tuple[int, ...]) -> T:
    """The leaves ``[n]``, widened, once for each of the draws ``[*shape, n]``."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, *x.shape)), widened(tree))


def indexed(tree: T, index: Any) -> T:
    """x[index] of each leaf x."""
    return jax.tree.map(operator.itemgetter(index), tree)


def rows_of(x: jax.Array, index: jax.Array | np.ndarray) -> jax.Array:
    """x[index] for indices that are in range and not negative, which `x[index]` would ask."""
    return x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def batch_of_one(tree: T) -> T:
    """A leading axis of length 1 in front of all arrays."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def widened_integers(targets: jax.Array) -> jax.Array:
    """Booleans and small integers as int32, which also holds the numbers they are compared with."""
    return targets.astype(jnp.int32) if targets.dtype.itemsize < 4 else targets


def is_traced(tree: PyTree) -> bool:
    """Whether any leaf is a tracer, so that its values are unknown."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


#: What `split` has forgotten of a tree: its structure, and which leaves were of the kind.
Split = tuple[jax.tree_util.PyTreeDef, tuple[bool, ...]]


def split(tree: PyTree, kinds: Sequence[bool]) -> tuple[list[Any], list[Any], Split]:
    """The leaves of a kind, the other leaves, and what `merge` needs to put them together."""
    leaves, treedef = jax.tree.flatten(tree)
    chosen = [leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind]
    rest = [leaf for leaf, kind in zip(leaves, kinds, strict=True) if not kind]
    return chosen, rest, (treedef, tuple(kinds))


def merge(chosen: Sequence[Any], rest: Sequence[Any], structure: Split) -> PyTree:
    """The inverse of `split`."""
    treedef, kinds = structure
    sources = {True: iter(chosen), False: iter(rest)}
    return jax.tree.unflatten(treedef, [next(sources[kind]) for kind in kinds])


@struct
class Bound:
    """A function with parameters as leaves, and options that choose its code as structure."""

    parameters: list[jax.Array]
    options: tuple[tuple[type, Any], ...] = static()
    structure: Split = static()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options = [value for _, value in self.options]
        return merge(self.parameters, options, self.structure)(*args, **kwargs)


def bind(function: Callable[..., Any]) -> Bound:
    """A user's function as an argument of jit.

    Functions, booleans, integers and strings that a `jax.tree_util.Partial` holds, such as
    ``unbiased=False``, are options; everything else that it holds is traced.
    """
    tree, kinds = as_pytree(function), (int, str, np.bool_, np.integer)
    are_parameters = [not isinstance(x, kinds) for x in jax.tree.leaves(tree)]
    parameters, options, structure = split(tree, are_parameters)
    # With their types: True equals 1.
    return Bound(parameters, tuple((type(x), x) for x in options), structure)
