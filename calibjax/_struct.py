"""Frozen dataclasses as pytrees, and pytrees taken apart by the kind of their leaves."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._static import StaticFunction, with_static_functions

T = TypeVar("T")


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field that is part of the structure, not a leaf: hashable, and never traced."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static,))
def struct(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree of its fields.

    Part of the structure instead of leaves are the `static` fields, and any field that holds a
    plain function: an object with a user's function in it can be an argument of a jitted function,
    and equal functions share what is compiled (see `_static`).  Callables that are pytrees
    themselves, such as `jax.tree_util.Partial`, keep their leaves.  `eq=False` because the
    generated equality fails on arrays.  A subclass is a struct too, with or without the decorator.
    """
    if "__dataclass_fields__" in vars(cls):  # by `make_struct` of a parent
        return cls
    # A `__repr__` that was written for all subclasses is not replaced by the generated one.
    author = next(base for base in cls.__mro__ if "__repr__" in vars(base))
    generated = author is object or "__dataclass_fields__" in vars(author)
    # `register_dataclass` decides by field, not by value: it cannot hold a function or a pytree.
    made: Any = dataclasses.dataclass(frozen=True, eq=False, repr=generated)(cls)
    fields = dataclasses.fields(made)

    def flatten_with_keys(instance):
        children, structure = [], []
        for field in fields:
            value, is_static = getattr(instance, field.name), field.metadata.get("static")
            if not is_static:
                value = with_static_functions(value, f"{field.name} of {made.__name__}")
            if is_static or isinstance(value, StaticFunction):
                structure.append((field.name, value))
            else:
                structure.append((field.name, _Leaf))
                children.append((jax.tree_util.GetAttrKey(field.name), value))
        return children, tuple(structure)

    def flatten(instance):
        children, structure = flatten_with_keys(instance)
        return [value for _, value in children], structure

    def unflatten(structure, children):
        # Not through the constructor: children may be tracers or placeholders.
        instance, children = object.__new__(made), iter(children)
        for name, value in structure:
            if isinstance(value, StaticFunction):
                value = value.function
            object.__setattr__(instance, name, next(children) if value is _Leaf else value)
        return instance

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)

    def make_struct(subclass: type, **kwargs: Any) -> None:
        super(made, subclass).__init_subclass__(**kwargs)
        struct(subclass)

    # jax knows a pytree by its very class: each subclass has to be registered too.
    made.__init_subclass__ = classmethod(make_struct)
    return made


class _Leaf:
    """Stands in the structure where a leaf was: the class itself, which is one even if copied."""


def as_pytree(tree: Any) -> Any:
    """A tree that jit takes as an argument: its plain functions become part of the structure."""

    def is_partial(node: Any) -> bool:
        return isinstance(node, jax.tree_util.Partial)

    def of_node(node: Any) -> Any:
        if not is_partial(node):
            return with_static_functions(node)
        args, keywords = as_pytree((list(node.args), node.keywords))
        return with_static_functions(jax.tree_util.Partial(node.func, *args, **keywords))

    return jax.tree.map(of_node, tree, is_leaf=is_partial)


@struct
class Bound:
    """A function with parameters as leaves, and options that choose its code as structure."""

    parameters: list[Any]
    structure: Any = static()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        treedef, options = self.structure
        parameters = iter(self.parameters)
        leaves = [next(parameters) if kind is _Leaf else value for kind, value in options]
        return jax.tree.unflatten(treedef, leaves)(*args, **kwargs)


def bind(function: Any) -> Bound:
    """A user's function as an argument of jit.

    Functions, booleans, integers and strings that a `jax.tree_util.Partial` holds, such as
    ``unbiased=False``, are options; everything else that it holds is traced.
    """
    leaves, treedef = jax.tree.flatten(as_pytree(function))
    kinds = (int, str, np.bool_, np.integer)
    # With their types: True equals 1.
    options = [(type(x), x) if isinstance(x, kinds) else (_Leaf, None) for x in leaves]
    parameters = [x for x, (kind, _) in zip(leaves, options, strict=True) if kind is _Leaf]
    return Bound(parameters, (treedef, tuple(options)))


def is_array(leaf: Any) -> bool:
    """Whether `leaf` is a number or an array."""
    return isinstance(leaf, (jax.Array, bool, int, float)) or hasattr(leaf, "__array__")


def on_host(x: Any) -> np.ndarray:
    """A number or a concrete array as jax would hold it, to look at without work for a device."""
    return np.asarray(x, jnp.result_type(x))


def is_floating(leaf: Any) -> bool:
    """Whether `leaf` holds floating-point numbers, so that gradients can flow to it."""
    return jnp.issubdtype(jnp.result_type(leaf), jnp.floating)


def widest_dtype(*arrays: Any) -> Any:
    """float64 if any array is, else float32: 16-bit numbers are computed in float32."""
    return jnp.float64 if any(jnp.result_type(x) == jnp.float64 for x in arrays) else jnp.float32


def widened(tree: T) -> T:
    """All leaves as floating-point numbers of the widest dtype among them, at least float32."""
    dtype = widest_dtype(*jax.tree.leaves(tree))
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def batch_of_one(tree: T) -> T:
    """A leading axis of length 1 in front of all arrays."""
    return jax.tree.map(lambda x: x[None], tree)


def is_traced(tree: Any) -> bool:
    """Whether any leaf is a tracer, so that its values cannot be looked at."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def split(tree: Any, kinds: Sequence[bool]) -> tuple[list[Any], list[Any], Any]:
    """The leaves of a kind, the other leaves, and what `merge` needs to put them together."""
    leaves, treedef = jax.tree.flatten(tree)
    chosen = [leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind]
    rest = [leaf for leaf, kind in zip(leaves, kinds, strict=True) if not kind]
    return chosen, rest, (treedef, tuple(kinds))


def merge(chosen: Sequence[Any], rest: Sequence[Any], structure: Any) -> Any:
    """The inverse of `split`."""
    treedef, kinds = structure
    sources = {True: iter(chosen), False: iter(rest)}
    return jax.tree.unflatten(treedef, [next(sources[kind]) for kind in kinds])
