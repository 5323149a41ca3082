"""What happens to a test that is looked at every day."""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import calibjax as cj
from benchmarks.monitor.alarms import LEVEL, pvalues
from benchmarks.monitor.tables import percent, table
from benchmarks.power.labels import CLASSES
from benchmarks.power.scenario import CALIBRATED

_BLOCK_SIZE = 25
_N_EXAMPLE = 500


def cumulative_state(key: jax.Array, kernel: Any, days: Any) -> jax.Array:
    """The p-values of one `SKCEState` that grows day by day."""

    def step(state, day):
        state = state.update(kernel, *day)
        return state, state.compute().pvalue

    return lax.scan(step, cj.SKCEState.empty(_BLOCK_SIZE), days)[1]


def daily_blocks(key: jax.Array, kernel: Any, days: Any) -> jax.Array:
    """The block test of each day alone."""
    return lax.map(
        lambda day: cj.asymptotic_block_skce_test(kernel, *day, block_size=_BLOCK_SIZE).pvalue,
        days,
    )


def daily_tests(key: jax.Array, kernel: Any, days: Any) -> jax.Array:
    """`calibration_test` of each day alone."""
    keys = jax.random.split(key, len(days[1]))
    return lax.map(
        lambda day: cj.aggregated_skce_test(day[0], None, *day[1], n_resamples=199).pvalue,
        (keys, days),
    )


def monitor(key: jax.Array, kernel: Any, days: Any) -> jax.Array:
    """The monitor; its example is another day."""
    example = CLASSES[CALIBRATED](jax.random.fold_in(key, 1), _N_EXAMPLE)[0]
    return pvalues(cj.CalibrationMonitor.start(key, example), days)


WAYS: dict[str, Callable[[jax.Array, Any, Any], jax.Array]] = {
    "`SKCEState`, cumulative": cumulative_state,
    "block test of each day": daily_blocks,
    "`calibration_test` of each day": daily_tests,
    "`CalibrationMonitor`": monitor,
}


@functools.partial(jax.jit, static_argnames=("way", "n_days", "n_rows"))
def rings(key: jax.Array, *, way: Callable[..., jax.Array], n_days: int, n_rows: int) -> jax.Array:
    """Whether one stream of a calibrated model rings ever."""
    day_key, kernel_key, way_key = jax.random.split(key, 3)
    scenario = CLASSES[CALIBRATED]
    days = lax.map(lambda key: scenario(key, n_rows), jax.random.split(day_key, n_days))
    kernel = cj.default_kernel(scenario(kernel_key, _N_EXAMPLE)[0])
    return jnp.any(way(way_key, kernel, days) <= LEVEL)


def measure(quick: bool) -> Mapping[str, Any]:
    n_streams, n_days, n_rows = (2, 3, 100) if quick else (100, 60, 500)
    keys = jax.random.split(jax.random.key(3), n_streams)
    rows = []
    for name, way in WAYS.items():
        start = time.perf_counter()
        found = [rings(key, way=way, n_days=n_days, n_rows=n_rows) for key in keys]
        row = {"way": name, "rate": float(np.mean(found)), "n_streams": n_streams}
        rows.append(row | {"seconds": time.perf_counter() - start})
        print(rows[-1], flush=True)
    return {"rows": rows, "n_days": n_days, "n_rows": n_rows}


def section(result: Mapping[str, Any]) -> str:
    rows = result["rows"]
    text = (
        f"{rows[0]['n_streams']} streams of {result['n_days']} days, each of {result['n_rows']} "
        "rows of ten classes from a calibrated model. Each test is checked every day, and p <= "
        "0.05 is an alarm. A test has its level only for one check planned beforehand."
    )
    cells = [[row["way"], percent(row["rate"])] for row in rows]
    return f"{text}\n\n{table(['test', 'streams with an alarm'], cells)}"
