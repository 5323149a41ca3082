"""The simulation that probcal documents for its own monitor, with both monitors.

Probabilities of rare events come in batches of 2000 for 24 months, and their logits become wrong by
an offset or a slope in month 12, or are wrong from the first month on.

Source: probcal 0.4, ``docs/concepts/monitoring.md`` and ``docs/scripts/monitor_sim.py``.
"""

import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks.monitor.alarms import LEVEL, Alarms, chunks, first, pvalues
from benchmarks.monitor.tables import percent, rounded, table
from benchmarks.power.scenario import CALIBRATED

N_BATCHES, N_ROWS = 24, 2000
_CHUNK = 50


class Setting(NamedTuple):
    """Where the probabilities come from, from when on they are wrong, and numbers of runs."""

    title: str
    logits: Callable[[np.random.Generator], np.ndarray]
    drift: int
    n_calibrated: int
    n_wrong: int


def portfolio(_: np.random.Generator) -> np.ndarray:
    """The same logits in all batches: of ``make_pd_portfolio(2000, random_state=42)``."""
    logits = np.random.default_rng(42).normal(-3.2, 1.1, N_ROWS)
    return np.broadcast_to(logits, (N_BATCHES, N_ROWS))


def fresh(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(-2.0, 1.0, (N_BATCHES, N_ROWS))


SETTINGS = (
    Setting(
        "As documented: 2000 fixed probabilities, wrong from batch 12 on", portfolio, 12, 2000, 500
    ),
    Setting("Logits N(-2, 1), wrong from the first batch on", fresh, 0, 500, 200),
)

#: The offset and the slope of the true logits.
ERRORS = {
    CALIBRATED: (0.0, 1.0),
    "offset 0.2": (0.2, 1.0),
    "offset 0.4": (0.4, 1.0),
    "slope 0.8": (0.0, 0.8),
}

#: What probcal documents in the first setting: alarms of calibrated streams, and detected / median.
DOCUMENTED = {
    CALIBRATED: "1.6 %",
    "offset 0.2": "94 %, 6",
    "offset 0.4": "99 %, 2",
    "slope 0.8": "99 %, 2",
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def run_of(setting: Setting, error: tuple[float, float], run: int) -> tuple[Any, Any]:
    """The probabilities and the events of all batches, each ``[24, 2000]``."""
    rng = np.random.default_rng(run)
    offset, slope = error
    logits = setting.logits(rng)
    is_wrong = np.arange(N_BATCHES)[:, None] >= setting.drift
    true = sigmoid(np.where(is_wrong, offset + slope * logits, logits))
    events = rng.random(true.shape) < true
    return sigmoid(logits).astype(np.float32), events.astype(np.int32)


@jax.jit
def _pvalues(key: jax.Array, probabilities: jax.Array, events: jax.Array) -> jax.Array:
    """The p-values of some runs ``[runs, 24]``; the first batch is the example, without targets."""
    monitor = cj.CalibrationMonitor.start(key, cj.Bernoulli(probabilities[0, 0]))
    return jax.vmap(lambda p, y: pvalues(monitor, (cj.Bernoulli(p), y)))(probabilities, events)


def ours(setting: Setting, error: tuple[float, float], n_runs: int) -> np.ndarray:
    """The batch that rings first in each run, 24 for none."""
    found, start = [], 0
    for i, size in enumerate(chunks(n_runs, _CHUNK)):
        runs = [run_of(setting, error, run) for run in range(start, start + size)]
        batches = (jnp.asarray(np.stack(x)) for x in zip(*runs, strict=True))
        found.append(first(np.asarray(_pvalues(jax.random.key(i), *batches)) <= LEVEL))
        start += size
    return np.concatenate(found)


def theirs(setting: Setting, error: tuple[float, float], n_runs: int) -> np.ndarray:
    """The batch at which probcal's monitor rings first in each run, 24 for none."""
    # Here, because it is one of the peers that may be missing.
    from probcal.monitor import CalibrationMonitor

    rings = np.zeros((n_runs, N_BATCHES), bool)
    for run in range(n_runs):
        # The smallest grid: the confidence sequence takes most of the time, and no part in alarms.
        monitor = CalibrationMonitor(alpha=LEVEL, delta_ci_grid=(-3.0, 3.0, 2))
        probabilities, events = run_of(setting, error, run)
        for k in range(N_BATCHES):
            rings[run, k] = monitor.update(events[k].astype(float), probabilities[k]).alarm
            if rings[run, k]:
                break
    return first(rings)


def measure(quick: bool) -> Mapping[str, Any]:
    rows = []
    for setting in SETTINGS:
        for name, error in ERRORS.items():
            n_runs = setting.n_calibrated if name == CALIBRATED else setting.n_wrong
            monitors = {"calibjax": (ours, 2 if quick else n_runs)}
            if importlib.util.find_spec("probcal"):
                monitors["probcal"] = (theirs, 1 if quick else 200)
            for monitor, (alarms, n_runs) in monitors.items():
                start = time.perf_counter()
                found = Alarms.of(alarms(setting, error, n_runs), setting.drift, N_BATCHES)
                row = {"setting": setting.title, "error": name, "monitor": monitor}
                rows.append(row | found._asdict() | {"seconds": time.perf_counter() - start})
                print(rows[-1], flush=True)
    return {"rows": rows}


def section(result: Mapping[str, Any]) -> str:
    parts = [
        "24 batches of 2000 rows with rare events, as in probcal's documentation of its own "
        "monitor, level 0.05. Both monitors process the same runs (probcal only the first of "
        "them, with its default components). An alarm before the drift is false. The delay is in "
        "batches; 0 is the first batch with drift. The documented numbers of probcal are from "
        "2000 calibrated and 500 drifted runs."
    ]
    for setting in SETTINGS:
        rows = [row for row in result["rows"] if row["setting"] == setting.title]
        is_documented = setting is SETTINGS[0]
        header = ["error", "monitor", "runs", "false alarms", "detected", "mean", "median"]
        cells = [_cells(row) for row in rows]
        if is_documented:
            header = [*header, "documented"]
            cells = [
                [*c, DOCUMENTED[row["error"]] if row["monitor"] == "probcal" else ""]
                for c, row in zip(cells, rows, strict=True)
            ]
        parts += [f"#### {setting.title}", table(header, cells)]
    return "\n\n".join(parts)


def _cells(row: Mapping[str, Any]) -> list[str]:
    words = [row["error"], row["monitor"], str(row["n_streams"])]
    if row["error"] == CALIBRATED:
        return [*words, percent(row["early"] + row["detected"]), "", "", ""]
    numbers = [percent(row["detected"]), rounded(row["mean"]), rounded(row["median"])]
    return [*words, percent(row["early"]), *numbers]
