"""Parameters by their symbolic shapes: shared numbers, and words."""

import html
from collections.abc import Mapping
from typing import Protocol

import jax
import jax.numpy as jnp

from calibjax._base.check import check_shapes
from calibjax._base.struct import PyTree, is_array, is_traced


class Parametric(Protocol):
    """What has parameters, with symbolic shapes by their names."""

    @property
    def shapes(self) -> Mapping[str, str]: ...

    def parameter(self, name: str) -> jax.Array: ...


def share_numbers(predictions: Parametric) -> None:
    """Broadcasts numbers among the parameters of shape "n" to the batch of the other parameters.

    The parameters of *one* prediction, which has no batch, remain as they are.
    """
    leaves = jax.tree.leaves(predictions)
    if not all(map(is_array, leaves)) or len({jnp.ndim(leaf) == 0 for leaf in leaves}) < 2:
        return
    arrays = [
        (name, predictions.parameter(name), axes.split())
        for name, axes in predictions.shapes.items()
    ]
    arrays = [(name, value, axes) for name, value, axes in arrays if is_array(value)]
    batches = [
        jnp.shape(value)[: jnp.ndim(value) - len(axes) + 1]
        for _, value, axes in arrays
        if axes[0] == "n" and jnp.ndim(value) >= len(axes)
    ]
    numbers = [
        (name, value)
        for name, value, axes in arrays
        if axes == ["n"] and jnp.ndim(value) == 0 and "." not in name
    ]
    for name, value in numbers if batches else []:
        # A Python number takes the dtype of the others; beside integers, 1.5 is a float.
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(value, *leaves)
        shared = jnp.broadcast_to(jnp.asarray(value, dtype), batches[0])
        vars(predictions)[name] = shared


def family_name(predictions: object) -> str:
    """The name of a family; for mixtures with the family of their components."""
    parts = [family_name(part) for part in _parts(predictions)]
    name = type(predictions).__name__
    return f"{name}({', '.join(parts)})" if parts else name


def _parts(predictions: object) -> list[object]:
    """The distributions inside a distribution."""
    return [part for part in vars(predictions).values() if hasattr(part, "shapes")]


def in_words(predictions: PyTree) -> str:
    """Family, sizes and dtypes of a batch; or the leaves of one prediction.

    In place of arrays, anything may be in a pytree.
    """
    name, leaves = type(predictions).__name__, jax.tree.leaves(predictions)
    sizes = _sizes(predictions) if leaves and all(hasattr(x, "dtype") for x in leaves) else None
    if sizes is None:
        words = [f"{path}={_kind(leaf)}" for path, leaf in _named_leaves(predictions)]
    else:
        words = [f"{axis}={size}" for axis, size in sizes.items()]
        words += [family_name(part) for part in _parts(predictions)]
        words += dict.fromkeys(str(x.dtype) for x in leaves)
    return f"{name}({', '.join(words)})"


def _sizes(predictions: Parametric) -> dict[str, int] | None:
    """The size of each axis of a batch, None if the parameters do not have those axes."""
    try:
        return check_shapes(
            {name: (predictions.parameter(name), axes) for name, axes in predictions.shapes.items()}
        )
    except (AttributeError, ValueError):
        return None


def _named_leaves(predictions: PyTree) -> list[tuple[str, jax.Array]]:
    paths = jax.tree_util.tree_leaves_with_path(predictions)
    return [(jax.tree_util.keystr(path).lstrip("."), leaf) for path, leaf in paths]


def _kind(leaf: jax.Array) -> str:
    if not hasattr(leaf, "dtype"):
        return type(leaf).__name__
    return f"{leaf.dtype}{list(jnp.shape(leaf))}"


def as_table(predictions: PyTree) -> str:
    """The words as HTML, above a table of shapes, dtypes and ranges of the parameters."""
    rows = [(path, _kind(leaf), _range(leaf)) for path, leaf in _named_leaves(predictions)]
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    head = "<tr><th>parameter</th><th>dtype and shape</th><th>range</th></tr>"
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<b>{html.escape(in_words(predictions))}</b><table>{head}{body}</table>"


def _range(leaf: jax.Array) -> str:
    if is_traced(leaf):
        return "traced"
    if not is_array(leaf) or jnp.size(leaf) == 0:
        return ""
    with jax.ensure_compile_time_eval():
        return f"{float(jnp.min(leaf)):.4g} … {float(jnp.max(leaf)):.4g}"
