r"""How many events happened, and how many a model expects, where some rows are censored.

The number of events and the sum of the cumulative hazards H(t) = -log P(Y > t), over the times t
until which rows were seen, have one mean, whatever censors, and the variance of their difference is
that mean (a martingale).

A survival curve says H at its times and not in between.  With the gain G_ik of H over cell k, the
hazard of row i in the cell is taken to be G_ik times a function of time that all rows share.  The
events of the cell estimate it (Breslow), which leaves of the expected number of events

    E_k = N_k / sum_{events e in k} 1 / sum_{i seen at t_e} G_ik,

exact for linear H, for hazards t^a and for any others of this form, however coarse the times are.

Reference: Andersen, Borgan, Gill and Keiding, Statistical models based on counting processes, 1993,
section VII.2 for both.
"""

import functools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import first_rows, quick_jit
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Between, known_point
from calibjax.distributions import SurvivalCurve

# Tables have so many times of a curve.
_MOST_TIMES = 5


def expected_events(data: Data) -> tuple[float, float] | None:
    """How many events happened, and how many a calibrated model has until rows were last seen.

    None unless some rows are censored on the right and all others are known, for counts, for
    weights, and if the sum is infinite.
    """
    targets, n = data.targets, data.n_kept()
    low, high = (np.asarray(x)[:n] for x in (targets.low, targets.high))
    is_seen, is_real = low == high, data.predictions.target_kind == "real"
    is_censored = np.isposinf(high) & np.isfinite(low)
    is_right = is_censored.any() and (is_seen | is_censored).all()
    if not (is_right and is_real) or data.weights is not None:
        return None
    times, hazards, is_before_end = (np.asarray(x)[:n] for x in _hazards(data.predictions, targets))
    is_event = is_seen & is_before_end
    rows = first_rows(data.predictions, n)
    expected = _expected(rows, times, hazards.astype(np.float64), is_event)
    return (float(np.sum(is_event)), expected) if math.isfinite(expected) else None


def shares_by_times(
    data: Data, confidence_level: float
) -> dict[float, tuple[float, float, tuple[float, float]]]:
    """By some times of curves on one grid: the mean of 1 - S, and that of Kaplan and Meier.

    The latter has an interval (Greenwood's variance of log(-log S)), which assumes independent rows
    that are censored by chance; empty unless targets are censored on the right alone.
    """
    from scipy.stats import CensoredData, ecdf

    predictions, targets = data.predictions, data.targets
    if not isinstance(predictions, SurvivalCurve) or data.weights is not None or data.is_dependent:
        return {}
    n = data.n_kept()
    grid, probs, low, high = (
        np.asarray(x, np.float64)[:n]
        for x in (predictions.times, predictions.probs, targets.low, targets.high)
    )
    is_seen = low == high
    if np.any(grid != grid[0]) or not (is_seen | np.isposinf(high)).all() or not is_seen.any():
        return {}
    observed = ecdf(CensoredData(low[is_seen], right=low[~is_seen])).sf
    # If somebody is left at the last time that was seen, nothing is known of later ones.
    last = low.max() if observed.probabilities[-1] > 0 else np.inf
    times = grid[0][(grid[0] > 0) & (grid[0] <= last)]
    if times.size > _MOST_TIMES:
        times = times[np.linspace(0, times.size - 1, _MOST_TIMES).round().astype(int)]
    with warnings.catch_warnings():  # Where nobody or everybody is left ends are NaN or equal.
        warnings.simplefilter("ignore", RuntimeWarning)
        ends = observed.confidence_interval(confidence_level, method="log-log")
    return {
        float(t): (
            float(np.mean(1 - probs[:, grid[0] == t])),
            float(1 - observed.evaluate(t)),
            (float(1 - ends.high.evaluate(t)), float(1 - ends.low.evaluate(t))),
        )
        for t in times
    }


@functools.partial(quick_jit, light=True)
def _hazards(predictions: Distribution, targets: Between) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Until when rows were seen, H there, and whether a forecast is about that time."""
    at = known_point(predictions, targets)
    until = predictions.restricted(at)
    return until, -jnp.log(predictions.survival(until)), at <= until


# Curves may be flat where events happened, and 0.
@np.errstate(divide="ignore", invalid="ignore")
def _expected(
    predictions: Distribution, times: np.ndarray, hazards: np.ndarray, is_event: np.ndarray
) -> float:
    """The expected number of events; H of curves on one grid is interpolated by their events."""
    if not isinstance(predictions, SurvivalCurve):
        return float(hazards.sum())
    grid, probs = (np.asarray(x) for x in (predictions.times, predictions.probs))
    if np.any(grid != grid[0]):
        return float(hazards.sum())
    survival = np.minimum.accumulate(np.clip(probs.astype(np.float64), 0.0, 1.0), axis=1)
    ends = -np.log(np.pad(survival, ((0, 0), (1, 0)), constant_values=1.0))
    gains = np.diff(ends, axis=1)
    cells, expected = cells_of(predictions, times), 0.0
    for k in range(grid.shape[1]):
        inside = np.flatnonzero(cells == k)
        inside = inside[np.argsort(-times[inside])]
        later = gains[cells > k, k].sum()
        at_risk = later + np.cumsum(gains[inside, k])
        # Rows that were seen until the same time are all at risk.
        last = np.searchsorted(-times[inside], -times[inside], side="right") - 1
        events = is_event[inside]
        ratio = np.sum(1 / at_risk[last][events])
        if 0 < ratio < math.inf:
            expected += events.sum() / ratio
        else:  # S is taken to be linear in a cell without events.
            expected += later + np.sum(hazards[inside] - ends[inside, k])
    return float(expected)


def cells_of(curves: SurvivalCurve, times: np.ndarray) -> np.ndarray:
    """How many times of its curve are before each time, ``[n]``."""
    return np.sum(np.asarray(curves.times) < times[:, None], axis=1)
