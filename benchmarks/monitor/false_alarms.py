"""P(ever an alarm) of calibrated streams."""

import functools
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import calibjax as cj
from benchmarks.monitor.alarms import chunks
from benchmarks.monitor.tables import percent, table
from benchmarks.power.labels import BINARY, CLASSES
from benchmarks.power.numbers import COUNTS, REGRESSION
from benchmarks.power.scenario import CALIBRATED, Scenario

LEVELS = (0.01, 0.05, 0.1)
N_SAMPLES = 10
_N_EXAMPLE = 256
_CHUNK = 250


def rare_events(key: jax.Array, n: int) -> tuple[Any, jax.Array]:
    """Events of probability 0.01, most of them."""
    logit_key, label_key = jax.random.split(key)
    predictions = cj.Bernoulli(jax.nn.sigmoid(jax.random.normal(logit_key, (n,)) - 5))
    return predictions, predictions.sample(label_key)


def draws(key: jax.Array, n: int) -> tuple[Any, jax.Array]:
    """Draws from the law of the target, of which the tests judge the law."""
    law_key, draw_key, target_key = jax.random.split(key, 3)
    law = REGRESSION[CALIBRATED](law_key, n)[0]
    samples = law.sample(draw_key, (N_SAMPLES,)).T
    return cj.Empirical(samples, fair=True), law.sample(target_key)


STREAMS: dict[str, Scenario] = {
    "events": BINARY[CALIBRATED],
    "rare events": rare_events,
    "10 classes": CLASSES[CALIBRATED],
    "normal": REGRESSION[CALIBRATED],
    "Poisson": COUNTS[CALIBRATED],
    f"{N_SAMPLES} draws": draws,
}


@functools.partial(jax.jit, static_argnames=("scenario", "n_streams", "n_updates", "n_rows"))
def smallest_pvalues(
    key: jax.Array, *, scenario: Scenario, n_streams: int, n_updates: int, n_rows: int
) -> jax.Array:
    """The smallest p-value of each stream; its batches are drawn and forgotten one by one."""
    example_key, monitor_key, stream_key = jax.random.split(key, 3)
    monitor = cj.CalibrationMonitor.start(monitor_key, scenario(example_key, _N_EXAMPLE)[0])

    def step(carry, key):
        monitor, smallest = carry
        monitor = monitor.update(*scenario(key, n_rows))
        return (monitor, jnp.minimum(smallest, monitor.pvalue)), None

    def of_stream(key):
        keys = jax.random.split(key, n_updates)
        return lax.scan(step, (monitor, jnp.ones_like(monitor.pvalue)), keys)[0][1]

    return jax.vmap(of_stream)(jax.random.split(stream_key, n_streams))


def measure(quick: bool) -> Mapping[str, Any]:
    n_streams, n_updates, n_rows = (20, 10, 2) if quick else (10_000, 1000, 2)
    rows = []
    for name, scenario in STREAMS.items():
        start = time.perf_counter()
        sizes = chunks(n_streams, _CHUNK)
        keys = jax.random.split(jax.random.key(17), len(sizes))
        # Each chunk has another example batch and other features.
        found = np.concatenate(
            [
                smallest_pvalues(
                    key, scenario=scenario, n_streams=size, n_updates=n_updates, n_rows=n_rows
                )
                for key, size in zip(keys, sizes, strict=True)
            ]
        )
        # A NaN is an alarm: a monitor of a calibrated model must not break either.
        rates = {str(level): float(np.mean(~(found > level))) for level in LEVELS}
        row = {"family": name, "n_streams": found.size, "rates": rates}
        rows.append(row | {"seconds": time.perf_counter() - start})
        print(rows[-1], flush=True)
    return {"rows": rows, "n_updates": n_updates, "n_rows": n_rows}


def section(result: Mapping[str, Any]) -> str:
    n_streams = min(row["n_streams"] for row in result["rows"])
    header = ["predictions", *(f"alarm at {level:g}" for level in LEVELS)]
    cells = [
        [row["family"], *(percent(row["rates"][str(a)]) for a in LEVELS)] for row in result["rows"]
    ]
    text = (
        f"Probability of any false alarm for calibrated models: {n_streams} streams of "
        f"{result['n_updates']} updates with {result['n_rows']} rows each, checked after every "
        "update. By the theorem it is at most the level; the standard error near 5 % is 0.2 %. "
        f"Each group of {_CHUNK} streams has its own example batch and features."
    )
    return f"{text}\n\n{table(header, cells)}"
