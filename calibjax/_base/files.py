"""Files that keep a state, replaced at once: JSON, or numbers of NumPy with a header of JSON.

A header, or an object of JSON, says with a schema and a version what the file holds.
"""

import dataclasses
import hashlib
import io
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import PyTree, is_array, on_host, unwrapped

T = TypeVar("T")
AnyPath = str | os.PathLike[str]

_HEADER = "header"


@contextmanager
def replacing(path: AnyPath, content: bytes) -> Iterator[None]:
    """Gives a file a new content at the end of a block, at once, if the block does not fail.

    The content is on the disk before the block begins, in a file of the same folder: what can go
    wrong, such as a full disk, goes wrong before.  A symbolic link stays, and the file that it
    points to is replaced.
    """
    target = Path(os.path.realpath(path))
    # Two writers at the same time must not write into the same file.
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, part)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        yield
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    # After a loss of power the new file is still there, on systems that can write directories.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_file(path: AnyPath | IO[bytes], content: bytes) -> None:
    """Writes a file, which replaces an older one at once, or into one that is open."""
    if not isinstance(path, (str, os.PathLike)):
        path.write(content)
        return
    with replacing(path, content):
        pass


def json_of(content: Mapping[str, Any]) -> bytes:
    """The content of a file of JSON, in one line."""
    # Python's shortest decimals of float64 are read back as the same numbers.
    return json.dumps(content, allow_nan=False, ensure_ascii=False).encode() + b"\n"


def digest_of(content: object) -> str:
    """A digest of what is written, equal to that of what is read: JSON has exact decimals."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_json(path: AnyPath, expected: Mapping[str, Any], writer: str) -> dict[str, Any]:
    """The object in a file of JSON, which says all that is expected.

    Raises:
        OSError: the file does not exist or cannot be read.
        ValueError: the file holds something else than what its writer, a name for the error,
            writes.
    """
    content = Path(path).read_bytes()
    try:
        found = {**json.loads(content)}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: expected a file that {writer} has written.") from error
    check_header(path, found, expected)
    return found


def npz_of(header: Mapping[str, Any], tree: PyTree) -> bytes:
    """The content of an .npz file: a header, which JSON can hold, and all leaves by their names.

    Raises:
        ValueError: a leaf is NaN, so that the state is of no use.
    """
    arrays: dict[str, Any] = {name: on_host(_numbers(leaf)) for name, leaf in _named(tree)}
    for name, array in arrays.items():
        if _has_nan(array):
            raise ValueError(f"{name} must hold numbers to be saved, got NaN.")
    arrays[_HEADER] = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def read_npz(
    path: AnyPath, content: bytes, writer: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the leaves in the content of a file, by their names.

    The path and its writer are names for errors.

    Raises:
        ValueError: the file holds something else, or a part of it.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = dict(json.loads(arrays.pop(_HEADER).tobytes()))
    # NumPy, zipfile and zlib have a dozen errors for other bytes.
    except Exception as error:
        raise ValueError(
            f"{path}: expected a whole file that {writer} has written, got something else, or a "
            "part of one."
        ) from error
    return header, arrays


def check_header(path: AnyPath, header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """An error unless the header of a file says all that is expected."""
    for name, value in expected.items():
        if header.get(name) != value:
            raise ValueError(
                f"{path}: expected a file with {name} {_in_short(value)}, got "
                f"{_in_short(header.get(name))}."
            )


def with_leaves(path: AnyPath, arrays: Mapping[str, np.ndarray], like: T) -> T:
    """The tree with the structure of `like` and the leaves of a file.

    Raises:
        ValueError: the leaves have other names, shapes or dtypes, or one is NaN.
    """
    named = _named(like)
    missing = sorted({name for name, _ in named} ^ set(arrays))
    if missing:
        raise ValueError(
            f"{path}: expected a file of the same kind of state, got one which differs in having "
            f"{missing[0]}."
        )
    leaves = [_as_leaf(f"{path}: {name}", arrays[name], x) for name, x in named]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def structure_in_words(node: PyTree) -> str:
    """The structure of a pytree: names of classes and functions, and options, but no numbers."""
    node = unwrapped(node)
    if isinstance(node, jax.tree_util.Partial):
        return _in_brackets("Partial", [node.func, *node.args, *node.keywords.values()])
    if isinstance(node, (list, tuple)):
        return _in_brackets("", node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [(x, getattr(node, x.name)) for x in dataclasses.fields(node)]
        options = [f"{x.name}={value}" for x, value in fields if x.metadata.get("static")]
        parts = [value for x, value in fields if not x.metadata.get("static")]
        return _in_brackets(type(node).__name__, parts, options)
    return getattr(node, "__name__", type(node).__name__)


def _in_brackets(name: str, nodes: Sequence[PyTree], options: Sequence[str] = ()) -> str:
    leaves = [x is None or is_array(x) or isinstance(x, jax.ShapeDtypeStruct) for x in nodes]
    parts = [structure_in_words(x) for x, is_leaf in zip(nodes, leaves, strict=True) if not is_leaf]
    inside = ", ".join([*parts, *options])
    return f"{name}({inside})" if inside else name


def _in_short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]} …"


def _named(tree: PyTree) -> list[tuple[str, jax.Array]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), x) for path, x in leaves]


def _is_key(x: jax.Array) -> bool:
    return jnp.issubdtype(jnp.result_type(x), jax.dtypes.prng_key)


def _numbers(x: jax.Array) -> jax.Array:
    return jax.random.key_data(x) if _is_key(x) else x


def _has_nan(array: np.ndarray) -> bool:
    return jnp.issubdtype(array.dtype, jnp.inexact) and bool(np.any(np.isnan(array)))


def _as_leaf(name: str, stored: np.ndarray, like: jax.Array) -> jax.Array:
    numbers = jax.eval_shape(_numbers, like)
    if stored.shape != numbers.shape or stored.dtype != numbers.dtype:
        raise ValueError(
            f"{name} must be {numbers.dtype} of shape {list(numbers.shape)}, got {stored.dtype} of "
            f"shape {list(stored.shape)}."
        )
    if _has_nan(stored):
        raise ValueError(f"{name} must hold numbers, got NaN.")
    if _is_key(like):
        return jax.random.wrap_key_data(jax.device_put(stored), impl=jax.random.key_impl(like))
    return jax.device_put(stored)
