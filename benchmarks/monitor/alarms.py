"""When a monitor rings first, and what that says about many streams."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

import calibjax as cj

LEVEL = 0.05


def pvalues(monitor: cj.CalibrationMonitor, batches: Any) -> jax.Array:
    """The p-value after each of the batches, which are (predictions, targets) with a leading axis.

    It is NaN for no batch, and never grows.
    """

    def step(monitor, batch):
        monitor = monitor.update(*batch)
        return monitor, monitor.pvalue

    return lax.scan(step, monitor, batches)[1]


def first(rings: np.ndarray) -> np.ndarray:
    """The index of the first True of each row, and the length of a row where there is none."""
    return np.where(np.any(rings, axis=1), np.argmax(rings, axis=1), rings.shape[1])


class Alarms(NamedTuple):
    """What the first alarms of some streams say.

    Args:
        n_streams: the number of streams.
        early: the fraction of streams with an alarm before the drift.
        detected: the fraction of streams whose first alarm comes after it.
        mean, median: of the delays of the latter; 0 is an alarm at the first drifted row or batch.
    """

    n_streams: int
    early: float
    detected: float
    mean: float
    median: float

    @classmethod
    def of(cls, first: np.ndarray, drift: int, end: int) -> "Alarms":
        """From the indices of the first alarms; `end` is the index of a stream without any."""
        delays = first[(first >= drift) & (first < end)] - drift
        mean, median = (np.mean(delays), np.median(delays)) if delays.size else (np.nan, np.nan)
        early = float(np.mean(first < drift))
        return cls(first.size, early, delays.size / first.size, float(mean), float(median))


def chunks(n: int, size: int) -> list[int]:
    """The sizes of equal chunks of at most `size` which together are at least n."""
    n_chunks = -(-n // size)
    return [-(-n // n_chunks)] * n_chunks
