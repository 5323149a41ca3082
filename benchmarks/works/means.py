"""Confidence intervals for means of scores whose mean is known, and for a share of rows."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from calibjax.measures.sampling import mean_interval, wilson_interval

ROWS = (10, 30, 100, 200, 1000)
LEVEL = 0.95
DATA_SETS = 2000

#: For a number of data sets and of rows their scores, ``[sets, rows]``, and the mean of a score.
Scores = Callable[[np.random.Generator, int, int], tuple[np.ndarray, float]]


def _square(law: Any) -> Scores:
    """Squared errors over variances, of a calibrated model of one law."""

    def scores(rng: np.random.Generator, sets: int, n: int) -> tuple[np.ndarray, float]:
        y = law.rvs(size=(sets, n), random_state=rng)
        return np.square(y - law.mean()) / law.var(), 1.0

    return scores


def _poisson(rng: np.random.Generator, sets: int, n: int) -> tuple[np.ndarray, float]:
    rates = rng.uniform(0, 5, (sets, n))
    return np.square(rng.poisson(rates) - rates) / rates, 1.0


def _events(most: float, score: Callable[[Any, Any], Any]) -> Scores:
    """A score of events with probabilities from 0 to `most`."""
    # The mean over an even grid; the scores are bounded but for log(p), which p outweighs.
    grid = (np.arange(10**5) + 0.5) / 10**5 * most
    mean = float(np.mean(grid * score(grid, True) + (1 - grid) * score(grid, False)))

    def scores(rng: np.random.Generator, sets: int, n: int) -> tuple[np.ndarray, float]:
        p = rng.uniform(0, most, (sets, n))
        return score(p, rng.random((sets, n)) < p), mean

    return scores


def _log_score(p: Any, came: Any) -> Any:
    return -np.where(came, np.log(p), np.log1p(-p))


def _brier(p: Any, came: Any) -> Any:
    return 2 * np.square(p - came)


def _crps(rng: np.random.Generator, sets: int, n: int) -> tuple[np.ndarray, float]:
    """The CRPS of N(0, s^2) with log s from N(0, 1/4); its mean is E s / sqrt(pi)."""
    s, z = np.exp(rng.normal(size=(sets, n)) / 2), rng.normal(size=(sets, n))
    of_z = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - math.pi**-0.5
    return s * of_z, math.exp(1 / 8) * math.pi**-0.5


def _share(probability: float) -> Scores:
    return lambda rng, sets, n: (rng.random((sets, n)) < probability, probability)


SCORES: Mapping[str, Scores] = {
    "squared error / variance, normal": _square(stats.norm()),
    "squared error / variance, Laplace": _square(stats.laplace()),
    "squared error / variance, Student t (5)": _square(stats.t(5)),
    "squared error / variance, gamma (2)": _square(stats.gamma(2)),
    "squared error / variance, Poisson rates 0…5": _poisson,
    "CRPS, normal": _crps,
    "log score, events of 0…100 %": _events(1.0, _log_score),
    "log score, events of 0…3 %": _events(0.03, _log_score),
    "Brier score, events of 0…100 %": _events(1.0, _brier),
    "Brier score, events of 0…3 %": _events(0.03, _brier),
    "share of 90 %": _share(0.9),
    "share of 99 %": _share(0.99),
}


def misses(name: str, n: int, n_data_sets: int) -> dict[str, float]:
    """How often intervals lie above the mean and below it, ours and mean ± 1.96 errors."""
    rng = np.random.default_rng(20261122)
    values, mean = SCORES[name](rng, n_data_sets, n)
    interval = wilson_interval if name.startswith("share") else mean_interval
    ends = np.array([interval(row, LEVEL) for row in values]).T
    error = stats.norm.ppf((1 + LEVEL) / 2) * stats.sem(values, axis=1)
    middle = values.mean(axis=1)
    rates = functools.partial(_rates, mean)
    above, below = rates(*ends)
    return {"above": above, "below": below, "normal": sum(rates(middle - error, middle + error))}


def _rates(mean: float, low: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    # The ends of a share may differ from it by rounding.
    return float(np.mean(low > mean + 1e-12)), float(np.mean(high < mean - 1e-12))
