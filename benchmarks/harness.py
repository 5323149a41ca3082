"""Seconds, bytes and the machine that they were measured on."""

import ctypes
import functools
import gc
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).parents[1]

PACKAGES = "jax", "jaxlib", "numpy", "scipy", "optax", "probcal", "netcal", "river", "torch"

Call = Callable[[], Any]


def seconds(call: Call) -> float:
    """Wall time of one call, until its arrays are there."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def once(call: Call) -> float:
    """Seconds of the second of two calls."""
    return [seconds(call), seconds(call)][1]


def time_calls(calls: Mapping[str, Call], repeats: int) -> dict[str, dict[str, float]]:
    """Median, min and max of the repeats of each call, after a first one that compiles.

    The calls take turns: on a shared machine the speed drifts, and only what ran side by side can
    be compared.  In its turn each call runs twice and the second counts: the first finds the caches
    and thread pools as the other call left them.
    """
    for call in calls.values():
        seconds(call)
    turns = [{name: once(call) for name, call in calls.items()} for _ in range(repeats)]
    times = {name: [turn[name] for turn in turns] for name in calls}
    return {
        name: {
            "median": statistics.median(ts),
            "min": min(ts),
            "max": max(ts),
        }
        for name, ts in times.items()
    }


def compile_seconds(function: Callable[..., Any], *args: Any) -> float:
    """Tracing, lowering and compilation, from empty caches and without running."""
    jax.clear_caches()
    start = time.perf_counter()
    jax.jit(function).lower(*args).compile()
    return time.perf_counter() - start


def _resident_bytes(field: str) -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def memory_of(call: Call, warm: bool = True, at_least: float = 0.3) -> dict[str, Any]:
    """Peak resident megabytes of the second call, above what is resident before it, and seconds.

    The first call compiles; what it freed goes back to the system, and the kernel's high-water
    mark is reset.  `ru_maxrss` cannot be reset, and a child inherits it from its parent.  Linux.
    Seconds are the median of as many calls as fit into `at_least`.  Where nothing is left to
    compile and a call takes minutes, `warm` can be False, and there is one call.
    """
    if warm:
        jax.block_until_ready(call())
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = _resident_bytes("VmRSS")
    start = time.perf_counter()
    value = jax.block_until_ready(call())
    times = [time.perf_counter() - start]
    # Small work fits into pages that are resident already; one page is the least to be seen.
    used = max(_resident_bytes("VmHWM") - before, os.sysconf("SC_PAGE_SIZE"))
    while sum(times) < at_least:
        times.append(seconds(call))
    small = [float(x) for x in jax.tree.leaves(value) if np.size(x) == 1]
    return {"seconds": statistics.median(times), "megabytes": used / 1e6, "numbers": small}


def in_fresh_process(code: str, variables: Mapping[str, str] | None = None) -> Any:
    """Runs Python code from the repository root in a new process; what it prints is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{code!r} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def peak_memory(
    work: Callable[..., Call], *, warm: bool = True, **arguments: Any
) -> dict[str, Any]:
    """`memory_of` the call that a function of `works` makes, in a process of its own; only once."""
    return in_fresh_process(
        f"import json, {work.__module__} as works; from benchmarks import harness; "
        f"call = works.{work.__name__}(**{arguments!r}); "
        f"print(json.dumps(harness.memory_of(call, warm={warm})))"
    )


def busy_seconds() -> tuple[float, float]:
    """Seconds that all cores were busy, and those of this process and its ended children."""
    user, nice, system = pathlib.Path("/proc/stat").read_text().split()[1:4]
    own = os.times()
    return sum(map(int, (user, nice, system))) / os.sysconf("SC_CLK_TCK"), sum(own[:4])


def environment() -> dict[str, Any]:
    """What the numbers depend on: versions, the machine."""
    cpu = [
        line.split(":")[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES if importlib.util.find_spec(name)},
        "system": f"{platform.system()} on {platform.machine()}",
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "device": jax.devices()[0].device_kind,
    }
