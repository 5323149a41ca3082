r"""Measures of targets of which only intervals are known, such as censored lifetimes.

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

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Between, known_point
from calibjax.measures.measure import Measure, MeasureResult, NumberOfRows, Subset
from calibjax.measures.risk_by_time import Lifetimes, measures_by_time
from calibjax.scores import pit_interval

# Names of the mean of U = F(y), or of what is known of it, and of the number of events.
MEAN_PIT, EVENTS = "mean PIT", "events"


def measures_of_intervals(data: Data) -> dict[str, NumberOfRows]:
    """What does not need to know the targets, and the number of events of censored lifetimes.

    If U = F(y) is uniform, so it is in the interval that is known, and the middle of this interval
    has the mean 1/2, whatever hides the target.
    """
    n = data.n_kept()
    low, high = (np.asarray(x, np.float64)[:n] for x in pit_interval(data))
    mean_pit = Measure((low + high) / 2, possible=(0.0, 1.0), expected=(0.5, 0.5))
    return {MEAN_PIT: mean_pit} | measures_by_time(data) | _events(data)


def _events(data: Data) -> dict[str, NumberOfRows]:
    """How many events happened, and how many a calibrated model has until rows were last seen.

    None unless some rows are censored on the right and all others are known, for counts, and for
    weights.  For events of dependent rows only the mean is known.
    """
    predictions, targets, n = data.predictions, data.targets, data.n_kept()
    low, high = (np.asarray(x)[:n] for x in (targets.low, targets.high))
    is_seen, is_censored = low == high, np.isposinf(high) & np.isfinite(low)
    is_right = is_censored.any() and (is_seen | is_censored).all()
    if not (is_right and predictions.target_kind == "real") or data.weights is not None:
        return {}
    times, hazards, is_before_end = (np.asarray(x)[:n] for x in _hazards(predictions, targets))
    hazards, is_event = hazards.astype(np.float64), is_seen & is_before_end
    curves = Lifetimes.of(data)
    if curves is not None:
        curves = curves._replace(times=times.astype(np.float64), is_event=is_event)

    def result(rows: Subset) -> MeasureResult | None:
        some, half = rows.index, 0.0
        expected = float(hazards[some].sum())
        if curves is not None:
            expected = _expected(curves.chosen(some), hazards[some])
        if not math.isfinite(expected):
            return None
        if not rows.sampling.is_dependent:
            half = float(jax.scipy.special.ndtri((1 + rows.level) / 2)) * math.sqrt(expected)
        ends = max(expected - half, 0.0), expected + half
        return MeasureResult(float(is_event[some].sum()), None, ends)

    return {EVENTS: result}


@functools.partial(quick_jit, light=True)
def _hazards(predictions: Distribution, targets: Between) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Until when rows were seen, H there, and whether a forecast is about that time."""
    at = known_point(predictions, targets)
    until = restricted(predictions, at)
    return until, -jnp.log(predictions.survival(until)), at <= until


# Curves may be flat where events happened, and 0.
@np.errstate(divide="ignore", invalid="ignore")
def _expected(curves: Lifetimes, hazards: np.ndarray) -> float:
    """The expected number of events; H of curves on one grid is interpolated by their events."""
    grid, survival, times, is_event = curves
    ends = -np.log(np.pad(survival, ((0, 0), (1, 0)), constant_values=1.0))
    gains = np.diff(ends, axis=1)
    cells, expected = np.searchsorted(grid, times), 0.0
    for k in range(grid.size):
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
