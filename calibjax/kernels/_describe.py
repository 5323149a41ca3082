"""Kernels in words."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._struct import PyTree, is_array, is_traced


def describe(node: PyTree) -> str:
    """A kernel, distance or feature as text: names of classes and functions, and their numbers.

    Parameters that have their default value are left out, and an array shows its shape.  What has
    `words` is described by them.
    """
    if is_array(node):
        if is_traced(node) or np.ndim(node):
            return f"array of shape {list(jnp.shape(node))}"
        return f"{float(node):.3g}"
    words = getattr(node, "words", None)
    if isinstance(words, str):
        return words
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [
            describe(getattr(node, field.name))
            for field in dataclasses.fields(node)
            if not _is(getattr(node, field.name), field.default)
        ]
        return f"{type(node).__name__}({', '.join(fields)})"
    if isinstance(node, jax.tree_util.Partial):
        return describe(node.func)
    return getattr(node, "__name__", type(node).__name__)


def _is(value: PyTree, default: PyTree) -> bool:
    return isinstance(value, (int, float)) and value == default
