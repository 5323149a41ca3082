"""Lowered programs that are kept for other processes, beside those that jax has compiled.

jax keeps machine code in a folder, but finds it only after it has traced and lowered a program,
which takes longer than to run it.  What `jax.export` makes of a program is kept here, under all
that it depends on, and is read in place of tracing.
"""

import ast
import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import jax
import jaxlib
import numpy as np
from jax import export
from jax.tree_util import Partial

from calibjax._base.files import write_file

T = TypeVar("T")

_CAN_WRITE = find_spec("flatbuffers") is not None
#: Rules of users for types of calibjax: with any of them, a program is not what its name says.
RULES_OF_USERS: list[Callable[..., Any]] = []


def kept(function: Callable[..., T]) -> Callable[..., T]:
    """A function to jit that reads its program from a folder, or writes it there.

    jax calls it once for each program.  Programs are kept where jax keeps its own, and depend on
    what is known by name: functions and classes of calibjax and jax, shapes, options, and versions.
    Whatever else a program has in it, such as a user's kernel, is traced as always, and so is one
    that does not fit into a file or cannot be read.
    """

    @functools.wraps(function)
    def traced_or_read(*args: Any, **kwargs: Any) -> T:
        leaves, structure = jax.tree.flatten((args, kwargs))
        traced = [i for i, x in enumerate(leaves) if isinstance(x, jax.core.Tracer)]

        def of_arrays(*arrays: jax.Array) -> T:
            filled = list(leaves)
            for i, x in zip(traced, arrays, strict=True):
                filled[i] = x
            args, kwargs = jax.tree.unflatten(structure, filled)
            return function(*args, **kwargs)

        of_arrays.__name__ = function.__name__  # which profiles show
        if (programs := folder()) is None or not traced:
            return function(*args, **kwargs)
        arrays = [leaves[i] for i in traced]
        try:
            text = repr([_name(function), *map(_in_words, [structure, *leaves]), _options()])
            path = programs / hashlib.sha256(text.encode()).hexdigest()
            exported = _read(path, text) or _write(path, text, of_arrays, arrays)
        except Exception:  # Errors of the function itself come again.
            exported = None
        return function(*args, **kwargs) if exported is None else exported.call(*arrays)

    return traced_or_read


def folder() -> Path | None:
    """Where programs are kept, if jax keeps its own, and those of one process."""
    name = jax.config.values["jax_compilation_cache_dir"]
    if not name or "://" in name or not jax.config.values["jax_enable_compilation_cache"]:
        return None
    is_plain = jax.process_count() == 1 and not RULES_OF_USERS
    return Path(name, "calibjax") if is_plain and _CAN_WRITE else None


def _read(path: Path, text: str) -> export.Exported | None:
    """The program in a file; None if there is none, or it is damaged or of other versions."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, content = content[:32], content[32:]
    if digest != _digest(text, content):
        return None
    names, _, program = content.partition(b"\n")
    for name in names.decode().split():
        _register(_named(name))
    return export.deserialize(bytearray(program))


def _write(
    path: Path, text: str, function: Callable[..., Any], arrays: Sequence[jax.Array]
) -> export.Exported:
    """The program of a function, which is also written into the file, if that can be."""
    avals = map(jax.typeof, arrays)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in avals]
    exported = export.export(jax.jit(function))(*shapes)
    classes = _classes(exported.out_tree)
    for made in classes:
        _register(made)
    # A result with a function in its structure does not fit into a file.
    with suppress(OSError, TypeError, ValueError):
        content = " ".join(map(_name, classes)).encode() + b"\n" + exported.serialize()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, _digest(text, content) + content)
    return exported


def _classes(structure: jax.tree_util.PyTreeDef) -> set[type]:
    """The classes in what a program returns that jax does not know by name."""
    data = structure.node_data()
    is_own = data and (data[0] is Partial or data[0].__module__.startswith("calibjax."))
    own = {data[0]} if data and is_own else set()
    return own.union(*map(_classes, structure.children()))


@functools.cache
def _register(made: Any) -> None:
    """Tells jax by which name a class stands in a file, and that its options are plain values."""
    if hasattr(made, "_fields"):
        export.register_namedtuple_serialization(made, serialized_name=_name(made))
        return
    export.register_pytree_node_serialization(
        made, serialized_name=_name(made), serialize_auxdata=_as_text, deserialize_auxdata=_of_text
    )


def _as_text(options: Any) -> bytes:
    if callable(options):  # of a Partial
        return str(_in_words(options)).encode()
    text = repr(options)
    if ast.literal_eval(text) != options:
        raise ValueError(f"{text} is not a plain value")
    return text.encode()


def _of_text(text: bytes) -> Any:
    name = text.decode()
    return _named(name) if name.startswith(("calibjax.", "jax.")) else ast.literal_eval(name)


def _named(name: str) -> Any:
    module, _, of_module = name.rpartition(".")
    return getattr(importlib.import_module(module), of_module)


def _digest(text: str, program: bytes) -> bytes:
    return hashlib.sha256(repr((_versions(), text)).encode() + program).digest()


@functools.cache
def _versions() -> list[str]:
    """What the same text may mean something else in: sources, and libraries that traces use."""
    sources = hashlib.sha256()
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        sources.update(file.read_bytes())
    return [sources.hexdigest(), jax.__version__, jaxlib.__version__, np.__version__]


def _options() -> list[Any]:
    """What the code depends on besides its arguments."""
    config: Any = jax.config
    values = {x: getattr(config, x, value) for x, value in jax.config.values.items()}
    values = {name: value for name, value in values.items() if "_cache" not in name}
    if not jax.sharding.get_abstract_mesh().empty:
        raise TypeError("programs of several devices are not kept")
    kinds = [device.device_kind for device in jax.devices()]
    return [jax.default_backend(), kinds, sorted(values.items(), key=repr)]


def _in_words(x: Any) -> Any:
    """What stands for a part of a program in the name of its file, the same in all processes.

    Raises:
        TypeError: nothing does.
    """
    if isinstance(x, jax.core.Tracer):
        aval = jax.typeof(x)
        return str(aval.dtype), aval.shape, aval.weak_type
    if isinstance(x, jax.tree_util.PyTreeDef):
        data = x.node_data()
        return data and [_in_words(data), *map(_in_words, x.children())]
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, (tuple, list)):
        return [*map(_in_words, x)]
    # A function of a user may bear the name of one that it wraps.
    if x is type(None) or x is attrgetter(x.__qualname__)(sys.modules[x.__module__]):
        return _name(x)
    raise TypeError(f"{x!r} is not known by name")


def _name(x: Any) -> str:
    package = x.__module__.partition(".")[0]
    if package not in ("builtins", "calibjax", "jax") or "<" in x.__qualname__:
        raise TypeError(f"{x!r} is not known by name")
    return f"{x.__module__}.{x.__qualname__}"
