"""The numbers of a pytree in a file of NumPy."""

import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def save_leaves(path: str | os.PathLike[str], tree: Any) -> None:
    """Writes all leaves, by their names in the tree, into an .npz file.

    The file is complete at any time: it is written beside its place, and then moved there.
    """
    target = Path(path)
    beside = target.with_name(target.name + ".part")
    with beside.open("wb") as file:
        arrays: dict[str, Any] = {name: np.asarray(_numbers(x)) for name, x in _named(tree)}
        np.savez(file, **arrays)
    beside.replace(target)


def load_leaves(path: str | os.PathLike[str], like: T) -> T:
    """The tree with the structure of `like` and the leaves of a file.

    ValueError if the file has leaves of other names, shapes or dtypes.
    """
    named = _named(like)
    with np.load(path, allow_pickle=False) as file:
        if sorted(file.files) != sorted(name for name, _ in named):
            raise ValueError(
                f"path must be a file of the same monitor, got the arrays {file.files}."
            )
        leaves = [_as_leaf(name, file[name], x) for name, x in named]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in leaves]


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key)


def _numbers(x: Any) -> Any:
    return jax.random.key_data(x) if _is_key(x) else x


def _as_leaf(name: str, stored: np.ndarray, like: Any) -> jax.Array:
    expected = jnp.asarray(_numbers(like))
    if stored.shape != expected.shape or stored.dtype != expected.dtype:
        raise ValueError(
            f"path must be a file of the same monitor: {name} must be {expected.dtype} of shape "
            f"{list(expected.shape)}, got {stored.dtype} of shape {list(stored.shape)}."
        )
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(stored), impl=jax.random.key_impl(like))
    return jnp.asarray(stored)
