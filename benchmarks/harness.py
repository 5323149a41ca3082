"""Seconds, bytes and the machine that they were measured on."""

import ctypes
import datetime
import gc
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

ROOT = pathlib.Path(__file__).parents[1]

Call = Callable[[], Any]


def seconds(call: Call) -> float:
    """Wall time of one call, until its arrays are there."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def time_calls(calls: Mapping[str, Call], repeats: int) -> dict[str, dict[str, float]]:
    """First call (with compilation), then median, min and max of the repeats of each call.

    The calls take turns: on a shared machine the speed drifts, and only what ran side by side can
    be compared.  In its turn each call runs twice and the second counts: the first finds the caches
    and thread pools as the other call left them.
    """
    first = {name: seconds(call) for name, call in calls.items()}
    turns = [
        {name: [seconds(call), seconds(call)][1] for name, call in calls.items()}
        for _ in range(repeats)
    ]
    times = {name: [turn[name] for turn in turns] for name in calls}
    return {
        name: {
            "first": first[name],
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


def memory_of(call: Call) -> dict[str, float]:
    """Seconds and peak resident megabytes of the second call, above what is resident before it.

    The first call compiles; what it freed goes back to the system, and the kernel's high-water
    mark is reset.  `ru_maxrss` cannot be reset, and a child inherits it from its parent.  Linux.
    """
    jax.block_until_ready(call())
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = _resident_bytes("VmRSS")
    elapsed = seconds(call)
    # Small work fits into pages that are resident already; one page is the least to be seen.
    used = max(_resident_bytes("VmHWM") - before, os.sysconf("SC_PAGE_SIZE"))
    return {"seconds": elapsed, "megabytes": used / 1e6}


def in_fresh_process(code: str) -> Any:
    """Runs Python code from the repository root in a new process; what it prints is JSON."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{code!r} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def peak_memory(work: str, **arguments: Any) -> dict[str, float]:
    """`memory_of` the call that the function `work` of `works` makes, in a process of its own."""
    return in_fresh_process(
        "import json; from benchmarks import harness, works; "
        f"print(json.dumps(harness.memory_of(works.{work}(**{arguments!r}))))"
    )


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    cpu = [
        line.split(":")[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "optax")},
        "platform": platform.platform(),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        # Far above 0 at the start, the machine is shared: trust ratios more than seconds.
        "load": round(os.getloadavg()[0], 1),
        "device": jax.devices()[0].device_kind,
    }
