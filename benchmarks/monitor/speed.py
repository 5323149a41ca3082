"""Seconds of a row, bytes of the state, and the same numbers after a restart."""

import functools
import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import calibjax as cj
from benchmarks import harness
from benchmarks.monitor.false_alarms import STREAMS
from benchmarks.monitor.tables import table
from benchmarks.rows import quantity

_FAMILIES = ("events", "10 classes", "normal", "Poisson", "10 draws")


@functools.partial(jax.jit, static_argnums=(1, 2))
def batch(key: jax.Array, family: str, n: int) -> Any:
    return STREAMS[family](key, n)


def monitor_of(family: str, n: int) -> cj.CalibrationMonitor:
    return cj.CalibrationMonitor.start(jax.random.key(0), batch(jax.random.key(1), family, n)[0])


def after(monitor: cj.CalibrationMonitor, family: str, n: int, numbers: range) -> Any:
    """The monitor after the batches with these numbers."""
    update = jax.jit(lambda monitor, predictions, targets: monitor.update(predictions, targets))
    for number in numbers:
        monitor = update(monitor, *batch(jax.random.key(number), family, n))
    return monitor


def numbers_of(monitor: cj.CalibrationMonitor) -> list[str]:
    """All that the monitor says, with all digits."""
    return [float(x).hex() for x in (monitor.e_value, monitor.pvalue, monitor.n_rows)]


def resumed(path: str, family: str, n: int, numbers: range) -> list[str]:
    """The numbers of a monitor that is read from its file and goes on."""
    return numbers_of(after(monitor_of(family, n).load(path), family, n, numbers))


def is_bit_equal(family: str, n: int) -> bool:
    """Whether ten batches, and five, a file, another process and five more give one result."""
    whole = after(monitor_of(family, n), family, n, range(10))
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "monitor.npz")
        after(monitor_of(family, n), family, n, range(5)).save(path)
        call = f"resumed({path!r}, {family!r}, {n}, range(5, 10))"
        found = harness.in_fresh_process(
            f"import json; from benchmarks.monitor.speed import resumed; print(json.dumps({call}))"
        )
    return found == numbers_of(whole)


def measure(quick: bool) -> Mapping[str, Any]:
    n, repeats = (20, 1) if quick else (2000, 15)
    rows = []
    for family in _FAMILIES:
        data = batch(jax.random.key(2), family, n)
        start = time.perf_counter()
        monitor = jax.block_until_ready(monitor_of(family, n))
        seconds_to_start = time.perf_counter() - start
        update = jax.jit(lambda monitor, predictions, targets: monitor.update(predictions, targets))
        one_row = jax.tree.map(lambda x: x[:1], data)
        compilation = harness.compile_seconds(update, monitor, *data)
        times = harness.time_calls(
            {
                "batch": functools.partial(update, monitor, *data),
                "row": functools.partial(update, monitor, *one_row),
            },
            repeats,
        )
        rows.append(
            {
                "family": family,
                "seconds of a row in a batch": times["batch"]["median"] / n,
                "seconds of a batch of one row": times["row"]["median"],
                "seconds of the compilation": compilation,
                "seconds of start": seconds_to_start,
                "bytes": sum(np.asarray(x).nbytes for x in _arrays(monitor)),
                "bit-equal": is_bit_equal(family, n),
            }
        )
        print(rows[-1], flush=True)
    return {"rows": rows, "n": n}


def _arrays(monitor: cj.CalibrationMonitor) -> list[Any]:
    return [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in map(jax.numpy.asarray, jax.tree.leaves(monitor))
    ]


def section(result: Mapping[str, Any]) -> str:
    header = ["predictions", f"a row of {result['n']}", "rows per second", "a batch of one row"]
    header += ["compilation", "start", "state", "the same after a restart"]
    cells = [
        [
            row["family"],
            quantity(row["seconds of a row in a batch"], "s"),
            f"{1 / row['seconds of a row in a batch']:.2g}",
            quantity(row["seconds of a batch of one row"], "s"),
            quantity(row["seconds of the compilation"], "s"),
            quantity(row["seconds of start"], "s"),
            quantity(row["bytes"] / 1e6, "MB"),
            "yes" if row["bit-equal"] else "**no**",
        ]
        for row in result["rows"]
    ]
    text = (
        "Time of one `update` inside `jit` until its arrays are computed, median of 15. The "
        "state consists of all arrays of the monitor, including features. Last column: whether "
        "ten batches in one process give the same bits of e-value and p-value as five batches, a "
        "saved file, and five batches in another process."
    )
    return f"{text}\n\n{table(header, cells)}"
