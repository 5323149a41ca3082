"""Lowered programs that are kept for other processes, beside those that jax has compiled.

jax keeps machine code in a folder, but finds it only after it has traced and lowered a program,
which takes longer than to run it.  What `jax.export` makes of a program is kept here, under all
that it depends on, and is read instead of tracing.
"""

import functools
import hashlib
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import export
from jax.tree_util import PyTreeDef

from calibjax._base.files import write_file

T = TypeVar("T")

#: The structure of what a program returns, and the program, which returns its leaves.
Program = tuple[PyTreeDef, export.Exported]


def kept(function: Callable[..., T], folder: Path) -> Callable[..., T]:
    """A function to jit that reads its program from a folder, or writes it there.

    jax calls it once for each program.  Programs depend on what is known by name: functions and
    classes of calibjax and jax, shapes, options, and versions.  Whatever else a program has in it,
    such as a user's kernel, is traced as always, and so is one that does not fit into a file or
    cannot be read.
    """

    @functools.wraps(function)
    def traced_or_read(*args: Any, **kwargs: Any) -> T:
        leaves, structure = jax.tree.flatten((args, kwargs))
        traced = [i for i, x in enumerate(leaves) if isinstance(x, jax.core.Tracer)]
        arrays = [leaves[i] for i in traced]
        structures: list[PyTreeDef] = []

        def of_arrays(*arrays: jax.Array) -> list[jax.Array]:
            filled = list(leaves)
            for i, x in zip(traced, arrays, strict=True):
                filled[i] = x
            args, kwargs = jax.tree.unflatten(structure, filled)
            results, of_results = jax.tree.flatten(function(*args, **kwargs))
            structures.append(of_results)
            # A file does not say that a dtype is weak, and later programs depend on it.
            return [
                jnp.asarray(x, x.dtype) if x.weak_type else x for x in map(jnp.asarray, results)
            ]

        of_arrays.__name__ = function.__name__  # which profiles show
        try:
            text = repr([_name(function), *map(_in_words, [structure, *leaves]), _options()])
            path = folder / hashlib.sha256(text.encode()).hexdigest()
            program = _read(path, text)
            if program is None:
                avals = map(jax.typeof, arrays)
                shapes = [
                    jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in avals
                ]
                exported = export.export(jax.jit(of_arrays))(*shapes)
                program = structures[0], exported  # which tracing has appended
                _write(path, text, program)
        except Exception:  # Errors of the function itself are raised again.
            return function(*args, **kwargs)
        of_results, exported = program
        return jax.tree.unflatten(of_results, exported.call(*arrays))

    return traced_or_read


def _read(path: Path, text: str) -> Program | None:
    """The program in a file; None if there is none, or it is damaged or of other versions."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, content = content[:32], content[32:]
    if digest != _digest(text, content):
        return None
    structure, program = _Reader(io.BytesIO(content)).load()
    return structure, export.deserialize(bytearray(program))


class _Reader(pickle.Unpickler):
    """Reads what calibjax and jax define, and imports nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        packages = "calibjax", "jax", "jaxlib"
        if module.partition(".")[0] in packages:
            found = super().find_class(module, name)
            # A module also has the names that it imports.
            if getattr(found, "__module__", "").partition(".")[0] in packages:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not of calibjax or jax")


def _write(path: Path, text: str, program: Program) -> None:
    """Writes a program into a file, if that can be: functions in a structure may have no name."""
    structure, exported = program
    if _digest_of_sources() != _SOURCES or not all(map(_has_own_code, list(sys.modules.values()))):
        return
    with suppress(OSError, AttributeError, TypeError, ValueError, pickle.PicklingError):
        content = pickle.dumps((structure, bytes(exported.serialize())))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, _digest(text, content) + content)


def _digest(text: str, program: bytes) -> bytes:
    return hashlib.sha256(repr((_versions(), text)).encode() + program).digest()


def _versions() -> list[str]:
    """What the same text may mean something else in: sources, and libraries that traces use."""
    return [_SOURCES, jax.__version__, jaxlib.__version__, np.__version__]


def _digest_of_sources() -> str:
    sources = hashlib.sha256()
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        sources.update(file.read_bytes())
    return sources.hexdigest()


# The digest at import: files may change while a process runs.
_SOURCES = _digest_of_sources()


def _has_own_code(module: ModuleType) -> bool:
    """Whether a module of calibjax has the functions of its source, and none of a patch."""
    if module.__name__.partition(".")[0] != "calibjax":
        return True
    values = list(vars(module).values())
    types = [x for x in values if isinstance(x, type) and x.__module__ == module.__name__]
    ids = tuple(id(x) for owner in (module, *types) for x in vars(owner).values())
    if _OWN.get(module.__name__) != ids:
        if not _are_own(vars(module), _source_of(module.__name__, module.__file__ or "")):
            return False
        _OWN[module.__name__] = ids
    return True


# What the names of modules had when they were compared: that takes as long as to lower a program.
_OWN: dict[str, tuple[int, ...]] = {}


@functools.cache
def _source_of(name: str, path: str) -> CodeType | None:
    return SourceFileLoader(name, path).get_code(name)


def _are_own(names: Mapping[str, Any], code: CodeType | None) -> bool:
    """Whether functions, and those of classes, have the codes that are in the code around them."""
    codes: dict[str, list[CodeType]] = {}
    for x in code.co_consts if code else ():
        if isinstance(x, CodeType):
            codes.setdefault(x.co_name, []).append(x)
    return all(
        _is_own(x, codes[name]) if name in codes else not _is_foreign(x)
        for name, x in list(names.items())
    )


def _is_own(x: Any, codes: list[CodeType]) -> bool:
    if isinstance(x, type):
        return any(_are_own(vars(x), code) for code in codes)
    return getattr(_undecorated(x), "__code__", None) in codes


def _is_foreign(x: Any) -> bool:
    """Whether something that is not defined where it is was put there by a user, as mocks are."""
    function = _undecorated(x)
    if not isinstance(function, FunctionType):
        return type(x).__module__ == "unittest.mock"
    package = function.__module__.partition(".")[0]
    return not (package in _PACKAGES or package.startswith("namedtuple_"))


# Whose functions modules of calibjax import.
_PACKAGES = {"calibjax", "jax", "matplotlib", "sklearn", "typer", *sys.stdlib_module_names}


def _undecorated(x: Any) -> Any:
    return inspect.unwrap(getattr(x, "fget", None) or getattr(x, "func", x))


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
    if isinstance(x, PyTreeDef):
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


def _name(x: type | Callable[..., Any]) -> str:
    package = x.__module__.partition(".")[0]
    if package not in ("builtins", "calibjax", "jax") or "<" in x.__qualname__:
        raise TypeError(f"{x!r} is not known by name")
    return f"{x.__module__}.{x.__qualname__}"
