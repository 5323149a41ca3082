"""Programs that compile in less time.

Compilation is most of the time of a first call.  XLA takes options for each program: on a CPU the
programs of functions that are not called in loops are compiled with some, on a GPU all programs
with one.  Within a user's jit there is one program, which is compiled as the user says.

jax compiles a program for each shape.  Outside of jit, where rows are concrete, masked rows fill
the data up to the size of a bucket, so that 900 and 1000 rows are one shape.
"""

import functools
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from calibjax._base.exported import kept
from calibjax._base.struct import is_array, is_traced

T = TypeVar("T")

Option = tuple[str, Any]

# A tenth to a quarter of the time less, and the machine code is as fast.
_FEWER_PASSES: Option = ("xla_backend_optimization_level", 1)
# Two thirds less, but loops, such as those that draw random bits, take two to ten times as long.
_NO_PASSES: Option = ("xla_backend_optimization_level", 0)
# Another third to a half less, but loops over pairs of thousands of rows take up to a third longer.
# Not used for users' loops, which take up to seven times as long.  Unknown to jax 0.11.
_SIMPLE_LOOPS: Option = ("xla_cpu_use_fusion_emitters", False)
# XLA compiles a program in 32 parts at once, of which each costs.  As many parts as cores take a
# sixth less on two cores, of CPU seconds and by the clock.
_PARTS: Option = ("xla_cpu_parallel_codegen_split_count", os.cpu_count() or 1)
# Most of a compilation on a GPU is a search among kernels of Triton that multiply matrices: 7 to 24
# of 9 to 25 s on an H100 with four cores.  A library has its products at once, and as fast ones.
_NO_SEARCH: Option = ("xla_gpu_enable_triton_gemm", False)
# The size of arguments beyond which a program of more than `FEW_ROWS` rows takes as long to run as
# to compile, and all optimisations are worth some hundredths of that.
_MANY_NUMBERS = 2**18


def on_cpu() -> bool:
    """Whether the default device is a CPU, for which code is chosen while it is traced.

    Arrays that lie elsewhere are computed right, only more slowly.
    """
    config: Any = jax.config
    device = config.jax_default_device
    return getattr(device, "platform", device or jax.default_backend()) == "cpu"


def quick_jit(
    function: Callable[..., T], *, light: bool = False, optimised: bool = False, **static: Any
) -> Callable[..., T]:
    """`jax.jit`, which compiles in less time, unless it is called inside of another jit.

    `light` is for what a few rows do in milliseconds, whatever machine code they have.  `optimised`
    is for what users call in loops, or takes longer to run than to compile: it is traced in less
    time, where programs are kept, and compiled as always, unless it is `light`.  `static` are
    options of `jax.jit` that say which arguments are static.
    """
    plain = jax.jit(function, **static)

    @functools.cache
    def compiled(options: tuple[Option, ...], folder: Path | None) -> Callable[..., T]:
        made = function if folder is None else kept(function, folder)
        return jax.jit(made, compiler_options=dict(options) or None, **static)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> T:
        folder = program_folder()
        # A user who asks jax for no optimisations gets none, as do our tests.
        is_plain = jax.config.values["jax_disable_most_optimizations"]
        is_plain |= optimised and folder is None
        # Inside of jit even a constant is traced, and options would be an error.
        if is_plain or is_traced((args, kwargs, jax.device_put(0.0))):
            return plain(*args, **kwargs)
        # Devices are also arguments, without rows.
        leaves = list(filter(is_array, jax.tree.leaves((args, kwargs))))
        n_rows = max([np.shape(x)[0] for x in leaves if np.ndim(x)], default=0)
        has_few, is_short = sum(map(np.size, leaves)) <= _MANY_NUMBERS, n_rows <= FEW_ROWS
        is_light = light and (is_short or (has_few and n_rows <= _LIGHT_ROWS))
        wanted = [] if on_cpu() else [_NO_SEARCH]
        if on_cpu() and (has_few or is_short) and (is_light or not optimised):
            wanted += [_NO_PASSES if is_light else _FEWER_PASSES, _SIMPLE_LOOPS, _PARTS]
        if folder is not None and not _is_on_default_device(leaves):
            folder = None
        return compiled(tuple(filter(_is_known, wanted)), folder)(*args, **kwargs)

    return run


_CAN_WRITE = find_spec("flatbuffers") is not None
#: Rules of users for types of calibjax: with any of them, a program is not what its name says.
RULES_OF_USERS: list[Callable[..., Any]] = []


def program_folder() -> Path | None:
    """Where programs are kept, if jax keeps its own, and those of one process."""
    name = jax.config.values["jax_compilation_cache_dir"]
    if not name or "://" in name or not jax.config.values["jax_enable_compilation_cache"]:
        return None
    is_plain = jax.process_count() == 1 and not RULES_OF_USERS
    return Path(name, "calibjax") if is_plain and _CAN_WRITE else None


def _is_on_default_device(leaves: list[Any]) -> bool:
    """Whether all arrays are on the only device.

    Results of a kept program are bound to its device, and arrays on several devices would not go
    with them into one program.
    """
    arrays = [x for x in leaves if isinstance(x, jax.Array)]
    platforms = {device.platform for x in arrays for device in x.devices()}
    return jax.device_count() == 1 and platforms <= {jax.default_backend()}


@functools.cache
def _is_known(option: Option) -> bool:
    """Whether this version of XLA knows the option."""
    try:
        jax.jit(lambda: 0, compiler_options=dict([option])).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


#: The largest number of rows that are filled up: a pass over more takes as long as compilation.
LARGEST_BUCKET = 2**14
# The number of rows of which all pairs take less time than a program takes to compile.
FEW_ROWS = 2**10
# The number of rows up to which light programs take more time to optimise than optimising saves: of
# 3000, the SKCE and its interval compile in 1.8 s instead of 6.3 s, and take 2.0 s instead of 1.4.
_LIGHT_ROWS = 2**12


def bucket(n: int) -> int:
    """The least of the numbers 4, 6, 8, 12, …, 768, 1024, 1280, 1536, 1792, … that is at least n.

    They are m 2^k with m = 4, 6 up to 1024, and with m = 4, 5, 6, 7 above: there a step is at most
    a quarter, so that all pairs are at most some half more.  Beyond 2^14 every number is a bucket.
    """
    if n > LARGEST_BUCKET:
        return n
    step = 2 ** max((n - 1).bit_length() - (2 if n <= FEW_ROWS else 3), 0)
    return max(-(-n // step) * step, 4)


def filled_up(x: np.ndarray, size: int | None = None) -> np.ndarray:
    """The rows, and as many copies of the last one as a size needs; by default that of a bucket."""
    n = x.shape[0]
    size = bucket(n) if size is None else size
    if n in (0, size):
        return x
    # With NumPy: a program of XLA would be compiled for each number of rows.
    return np.concatenate([x, np.broadcast_to(x[-1:], (size - n, *x.shape[1:]))])


def first_rows(results: T, n: int) -> T:
    """The results of the first n rows: those of the rows that the user has."""

    def cut(x: jax.Array) -> jax.Array:
        if x.shape[0] == n:
            return x
        if is_traced(x):  # by a key, or by parameters of a kernel
            return x[:n]
        # With NumPy: a slice would be compiled for each number of rows.
        return jax.device_put(np.asarray(x)[:n])

    return jax.tree.map(cut, results)
