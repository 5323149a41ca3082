"""Error against time: all pairs, blocks, random features."""

import math
import statistics
import time
from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.rows import Row, table
from benchmarks.works import accuracy


def _estimates() -> dict[str, tuple[accuracy.Estimate, int]]:
    """Estimates, and the largest n that they are run at."""
    estimates = {"all pairs": (accuracy.of_all_pairs(), 100_000)}
    estimates |= {f"blocks of {b}": (accuracy.of_blocks(b), 1_000_000) for b in (2, 32, 256)}
    for n_features, largest_n in ((64, 1_000_000), (256, 1_000_000), (1024, 100_000)):
        name = f"{n_features} random features"
        estimates[name] = accuracy.of_random_features(n_features), largest_n
    return estimates


@table(
    "Error against time",
    columns=("n", "estimate", "time [ms]", "root mean squared error", "data sets"),
)
def random_features(quick: bool) -> Iterator[Row]:
    """Estimates of the SKCE of a model of 10 classes whose logits are 1.2 times too large; its true
    SKCE is computed from blocks of 10^7 rows. The root mean squared error is over data sets, each
    with its own random features."""
    truth = float(accuracy.truth(2 if quick else 1000))
    for n in (256,) if quick else (1000, 10_000, 100_000, 1_000_000):
        keys = jax.random.split(jax.random.key(n), 2 if quick else 100 if n < 100_000 else 10)
        for name, (estimate, largest_n) in _estimates().items():
            if n <= largest_n:
                values, seconds = _evaluate(estimate, keys, n)
                yield {
                    "n": n,
                    "estimate": name,
                    "time [ms]": 1e3 * seconds,
                    "root mean squared error": math.sqrt(np.mean((values - truth) ** 2)),
                    "data sets": len(keys),
                }


def _evaluate(estimate: accuracy.Estimate, keys: jax.Array, n: int) -> tuple[np.ndarray, float]:
    """Estimates from a data set of n rows for each key, and the median seconds of one."""
    values, times = [], []
    for i, key in enumerate(keys):
        data = jax.block_until_ready(accuracy.over_confident(key, n))
        key = jax.random.fold_in(key, 2)
        if i == 0:
            jax.block_until_ready(estimate(key, *data))
        start = time.perf_counter()
        values.append(float(estimate(key, *data)))
        times.append(time.perf_counter() - start)
    return np.array(values), statistics.median(times)
