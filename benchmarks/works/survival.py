"""Simulated lifetimes that are censored, and p-values of tests of their predictions."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaincc

import calibjax as cj

SHAPE = 1.5
N_CELLS = 10


class Case(NamedTuple):
    """Lifetimes and what hides them; the predictions are Weibull laws with shapes 1.5.

    Args:
        censored: which part of the lifetimes is censored, nearly.
        of_end: the power of the predicted scale in the scale of the time of censoring.
        scale: by how much longer the lifetimes are than predicted.
        shape: their shape, in units of the predicted one.
        above: by how much longer they are where the predicted scale is above its median.
        below: and where it is below.
    """

    censored: float
    of_end: float = 0.0
    scale: float = 1.0
    shape: float = 1.0
    above: float = 1.0
    below: float = 1.0

    def draw(self, key: jax.Array, n: int) -> tuple[Any, jax.Array, jax.Array]:
        """Predictions, lifetimes, and times of censoring, ``[n]``."""
        of_x, of_y, of_end = jax.random.split(key, 3)
        x = jax.random.normal(of_x, (n,))
        predictions = cj.Weibull(jnp.full(n, SHAPE), jnp.exp(x / 2))
        factor = self.scale * jnp.where(x > 0, self.above, self.below)
        noise = jax.random.exponential(of_y, (n,)) ** (1 / (SHAPE * self.shape))
        lifetimes = jnp.clip(predictions.scale * factor * noise, 1e-6, 1e6)
        ratio = ((1 - self.censored) / jnp.asarray(self.censored)) ** (1 / SHAPE)
        noise = jax.random.exponential(of_end, (n,)) ** (1 / SHAPE) + 1e-6
        return predictions, lifetimes, ratio * predictions.scale**self.of_end * noise


LEVELS = {
    "0 % censored": Case(0.0),
    "35 % censored": Case(0.35),
    "65 % censored": Case(0.65),
    "90 % censored": Case(0.9),
    "65 % censored, long lives early": Case(0.65, of_end=-1.0),
}
#: How large a part of 50 and of 400 rows must be censored for 10 events.
FEW_EVENTS = {50: Case(0.8, of_end=1.0), 400: Case(0.975, of_end=1.0)}
ERRORS = {
    "lives are 1.15 times as long": {"scale": 1.15},
    "the shape is 1.2 times as large": {"shape": 1.2},
    "half of the lives are 1.25 times as long": {"above": 1.25},
    "longer by 1.15 above the median, shorter below": {"above": 1.15, "below": 1 / 1.15},
}
SHARES = (0.0, 0.35, 0.65)
TESTS = {
    "multipliers": "`calibration_test`",
    "exact": "the same, times of censoring known",
    "d": "D-calibration",
    "a": "A-calibration",
    "log_rank": "one-sample log-rank",
}


def pvalues_of(
    key: jax.Array, predictions: Any, lifetimes: jax.Array, ends: jax.Array, n_resamples: int
) -> dict[str, jax.Array]:
    """The p-value of each test of one data set."""
    time, observed = jnp.minimum(lifetimes, ends), lifetimes <= ends
    targets = cj.IntervalCensored.right_censored(time, observed)
    known = cj.IntervalCensored.right_censored(time, observed, ends)
    found = {
        name: cj.calibration_test(key, predictions, y, n_resamples=n_resamples).pvalue
        for name, y in (("multipliers", targets), ("exact", known))
    }
    return found | {
        "d": cj.d_calibration(predictions, targets).pvalue,
        "a": pearson(predictions, time, observed, N_CELLS),
        "log_rank": pearson(predictions, time, observed, 1),
    }


def pearson(predictions: Any, time: jax.Array, observed: jax.Array, n_cells: int) -> jax.Array:
    """The p-value of sum_j (O_j - E_j)^2 / E_j, whose terms do not depend on each other.

    With x = -log(1 - F(y)), which is exponential if the model is calibrated, E_j is the time that
    all rows spend in the cell j of x until their event or censoring, and O_j is the number of
    events.  All E_j are equal.
    """
    x = -jnp.log(predictions.survival(time))
    ordered, n = jnp.sort(x), time.size
    # Until the k-th time: what the rows before it have spent, and the others, who are still there.
    n_there = jnp.arange(n - 1, -1, -1, dtype=x.dtype)
    spent = jnp.cumsum(ordered) + ordered * n_there
    edges = jnp.arange(1, n_cells, dtype=x.dtype) / n_cells * spent[-1]
    cells = jnp.searchsorted(edges, spent[jnp.searchsorted(ordered, x)])
    events = jnp.zeros(n_cells).at[cells].add(observed.astype(jnp.float32))
    expected = spent[-1] / n_cells
    statistic = jnp.sum(jnp.square(events - expected)) / expected
    return gammaincc(n_cells / 2, statistic / 2)


def rejected(
    case: Case, n: int, n_data_sets: int, n_resamples: int, level: float
) -> Mapping[str, Any]:
    """How often each test rejects, and the mean number of events."""
    keys = jax.random.split(jax.random.key(0), n_data_sets)
    found, events = _data_sets(case, keys, n, n_resamples)
    rates = {name: float(jnp.mean(p <= level)) for name, p in found.items()}
    return {"events": float(jnp.mean(events)), "rates": rates}


@functools.partial(jax.jit, static_argnums=(2, 3))
def _data_sets(case: Case, keys: jax.Array, n: int, n_resamples: int) -> Any:
    """The p-values and the number of events of each data set; all cases are one program."""

    def data_set(key: jax.Array) -> Any:
        of_data, of_tests = jax.random.split(key)
        predictions, lifetimes, ends = case.draw(of_data, n)
        found = pvalues_of(of_tests, predictions, lifetimes, ends, n_resamples)
        return found, jnp.sum(lifetimes <= ends)

    return jax.lax.map(data_set, keys, batch_size=4)
