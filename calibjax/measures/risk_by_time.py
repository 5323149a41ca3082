r"""Risks by the times of survival curves, and their Brier scores, of right-censored targets.

A model predicts the probability F(t) = 1 - S(t) for the event "Y <= t", and given all that was
observed of a row

    F(t | seen) = 1 after an event by t,  0 if seen beyond t,  1 - S(t) / S(c) if censored at c < t.

Its mean is F(t) if the model is calibrated, whatever censors, if only that is independent of the
target given the prediction.  The difference is a martingale in t, whose variance given what was
seen is the mean of S(t)^2 (1 / S(T)^2 - 1) / 2, with T the end of what was seen, at most t.  Both
are the p-value of a time.  The estimate of Kaplan and Meier, which is shown beside the mean of F,
needs censoring that does not depend on the prediction either, and so does the integrated Brier
score.

That estimate S falls at the times of events by the factor 1 - d / Y, for the weights d of events
and Y of rows at risk.  The derivative of 1 - S(t) in the weight of row i is S(t) times

    1[event at T_i <= t] / (Y - d) - sum_{s <= min(t, T_i)} d / (Y (Y - d)),

so that 1 - S(t) and these numbers are a mean of rows, with their weights, clusters and times.  The
variance of the mean of independent rows of equal weight is exactly that of Greenwood.

Reference: Kaplan and Meier, JASA 1958; Greenwood 1926; Efron, The jackknife, the bootstrap and
other resampling plans, 1982, for derivatives in weights; Graf, Schmoor, Sauerbrei and Schumacher,
Statistics in Medicine 1999, for the score; McLernon et al., Assessing performance and clinical
usefulness in prediction models with survival outcomes, Annals of Internal Medicine 2023, for
observed / expected.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibjax._data.data import Data
from calibjax._data.interval_censored import IntervalCensored
from calibjax.distributions import SurvivalCurve
from calibjax.measures.measure import Measure, MeasureResult, NumberOfRows, Subset, ratio_of_means
from calibjax.measures.sampling import Interval, Sampling


class KaplanMeier:
    """P(Y <= t) by right-censored times, each of them that of an event or of the last sight.

    Args:
        times: ``[m]``.
        is_event: whether there was an event, ``[m]``.
        sampling: the weights of the rows, and which depend on each other.
        events_last: whether other rows of the time of an event are no longer at risk, as those
            with an event are if censoring is what is estimated.
    """

    def __init__(
        self, times: np.ndarray, is_event: np.ndarray, sampling: Sampling, events_last: bool = False
    ) -> None:
        self.sampling, shares = sampling, sampling.shares()
        self._steps, self._row = np.unique(times, return_inverse=True)
        events, others = (np.bincount(self._row, shares * x) for x in (is_event, ~is_event))
        at_risk = np.cumsum((events + others)[::-1])[::-1] - (others if events_last else 0.0)
        # Sums of weights differ by rounding where all rows at risk have an event.
        left = np.where(at_risk - events > 1e-12 * at_risk, at_risk - events, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(events > 0, left / at_risk, 1.0)
            hazards = np.where(events > 0, events / (left * at_risk), 0.0)
            self._of_event = np.where(is_event, 1 / left[self._row], 0.0)
        self._survival = np.append(1.0, np.cumprod(factors))
        self._hazards = np.append(0.0, np.cumsum(hazards))

    def risk(self, at: ArrayLike, *, before: bool = False) -> Any:
        """P(Y <= t) at times t, or P(Y < t)."""
        return 1 - self._survival[np.searchsorted(self._steps, at, "left" if before else "right")]

    def influence(self, at: float) -> np.ndarray:
        """Numbers of rows with the weighted mean 0, to whose mean the risk owes its error, ``[m]``.

        They are not finite where S is 0.
        """
        k = int(np.searchsorted(self._steps, at, "right"))
        of_event = np.where(self._row < k, self._of_event, 0.0)
        return self._survival[k] * (of_event - self._hazards[np.minimum(self._row + 1, k)])

    def interval(self, at: float, level: float) -> Interval | None:
        """That of log(-log S), with the variance of Greenwood; None where S is 0 or 1."""
        from scipy.special import stdtrit

        survival = float(1 - self.risk(at))
        if not 0 < survival < 1:
            return None
        values = self.influence(at)
        error, freedom = math.sqrt(np.square(values).sum()) / values.size, math.inf
        if not self.sampling.is_plain:
            error, freedom = self.sampling.error(values)
        power = math.exp(
            stdtrit(freedom, (1 + level) / 2) * error / (survival * -math.log(survival))
        )
        return 1 - survival ** (1 / power), 1 - survival**power


#: Names of the share of events by a time, and of its ratio to what was predicted.
RISK_BY, RATIO_BY = "risk by ", "observed / expected by "
_BRIER = "integrated Brier score"
# The largest number of times of a curve that have a line in a table.
_MOST_TIMES = 5


class Lifetimes(NamedTuple):
    """Right-censored targets of n survival curves on one grid of K times.

    Args:
        grid: the times of the curves, ``[K]``.
        survival: S there, ``[n, K]``.
        times: of events, or of the last sight, ``[n]``.
        is_event: ``[n]``.
    """

    grid: np.ndarray
    survival: np.ndarray
    times: np.ndarray
    is_event: np.ndarray

    @classmethod
    def of(cls, data: Data) -> "Lifetimes | None":
        """Those of the kept rows; None of other predictions or targets, and without any event."""
        p, targets, n = data.predictions, data.targets, data.n_kept()
        if not (isinstance(p, SurvivalCurve) and isinstance(targets, IntervalCensored)):
            return None
        columns = p.times, p.probs, targets.low, targets.high
        grid, probs, low, high = (np.asarray(x, np.float64)[:n] for x in columns)
        is_event = low == high
        is_right = (is_event | np.isposinf(high)).all() and is_event.any()
        if not is_right or np.any(grid != grid[0]):
            return None
        survival = np.minimum.accumulate(np.clip(probs, 0.0, 1.0), axis=1)
        return cls(grid[0], survival, low, is_event)

    def chosen(self, index: np.ndarray) -> "Lifetimes":
        """Some of the rows."""
        return Lifetimes(self.grid, *(x[index] for x in self[1:]))

    def last_time(self) -> float:
        """If somebody is left at the last time that was seen, nothing is known of later ones."""
        last = self.times.max()
        return math.inf if self.is_event[self.times == last].all() else float(last)

    def shown(self) -> list[int]:
        """Which times have a line: at most five that divide the grid evenly, with the last one."""
        known = np.flatnonzero((self.grid > 0) & (self.grid <= self.last_time()))
        ranks = np.arange(1, min(known.size, _MOST_TIMES) + 1) * max(1.0, known.size / _MOST_TIMES)
        return known[ranks.round().astype(int) - 1].tolist()

    def residuals(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """F(t | seen) - F(t) by time k, and its variances, ``[n]``."""
        end, row = np.minimum(self.times, self.grid[k]), np.arange(len(self.times))
        at = self.survival[:, k]
        ends, curves = np.append(0.0, self.grid), np.insert(self.survival, 0, 1.0, axis=1)
        cell = np.searchsorted(self.grid, end)
        share = _ratio(end - ends[cell], ends[cell + 1] - ends[cell], 1.0)
        seen = (1 - share) * curves[row, cell] + share * curves[row, cell + 1]
        left = _ratio(at, seen, 0.0)  # Where S was 0 already, an event was certain.
        is_event = self.is_event & (self.times <= self.grid[k])
        return at - np.where(is_event, 0.0, left), (np.square(left) - np.square(at)) / 2

    def pvalue_of_censoring(self) -> float:
        """That of the log-rank test whether rows of high and low predicted risk are censored alike.

        Rows with an event are not at risk of censoring at its time.
        """
        from scipy.stats import CensoredData, logrank

        risk, before = -self.survival.sum(axis=1), np.nextafter(self.times, -math.inf)
        is_high, lost = risk > np.median(risk), ~self.is_event
        if not is_high.any() or not lost.any():
            return 1.0
        halves = (
            CensoredData(self.times[x & lost], right=before[x & self.is_event])
            for x in (is_high, ~is_high)
        )
        return float(logrank(*halves).pvalue)


def _ratio(x: np.ndarray, y: np.ndarray, otherwise: float) -> np.ndarray:
    return np.divide(x, y, out=np.full(x.shape, otherwise), where=y > 0)


def measures_by_time(data: Data) -> dict[str, NumberOfRows]:
    """By some times of curves on one grid the risk and O/E, and the integrated Brier score.

    None unless targets are censored on the right alone.
    """
    lifetimes = Lifetimes.of(data)
    if lifetimes is None:
        return {}
    times = {k: f"{lifetimes.grid[k]:.4g}" for k in lifetimes.shown()}

    @functools.cache
    def measures(rows: Subset) -> dict[str, MeasureResult | None]:
        some, found = lifetimes.chosen(rows.index), dict[str, MeasureResult | None]()
        for k, time in times.items():
            found[RISK_BY + time], found[RATIO_BY + time] = risk_and_ratio(some, k, rows)
        scores = brier_rows(some, rows.sampling)
        measure = scores is not None and Measure(scores, possible=(0.0, math.inf))
        return found | {_BRIER: measure(rows.alone()) if measure else None}

    def number(name: str, rows: Subset) -> MeasureResult | None:
        return measures(rows)[name]

    names = [x + time for time in times.values() for x in (RISK_BY, RATIO_BY)]
    return {x: functools.partial(number, x) for x in (*names, _BRIER)}


def risk_and_ratio(
    some: Lifetimes, k: int, rows: Subset
) -> tuple[MeasureResult | None, MeasureResult | None]:
    """The Kaplan-Meier risk by time k, and its ratio to the mean of what curves say."""
    time, predicted = some.grid[k], 1 - some.survival[:, k]
    if time > some.last_time():
        return None, None
    observed, shares = KaplanMeier(some.times, some.is_event, rows.sampling), rows.sampling.shares()
    (residuals, variances), mean = some.residuals(k), float(shares @ predicted)
    pvalue = rows.sampling.pvalue(residuals)
    variance = float(np.square(shares) @ variances)
    if not rows.sampling.is_dependent and variance > 0:  # which is known then
        pvalue = math.erfc(abs(float(shares @ residuals)) / math.sqrt(2 * variance))
    value, ends = float(observed.risk(time)), observed.interval(time, rows.level)
    is_last = value == 1 and not some.is_event.all()
    note = f"no CI: the last row at risk had an event; expected {mean:.3g}" if is_last else None
    risk = MeasureResult(value, ends, (mean, mean), pvalue, note=note)
    if ends is None or mean == 0:
        return risk, None
    # The risk is a mean of rows, up to terms that are smaller than its error.
    columns = np.stack([value + observed.influence(time), predicted], axis=1)
    ratio = Measure(columns, ratio_of_means, expected=(1.0, 1.0), is_ratio=True)
    return risk, ratio(rows.alone())


def brier_rows(some: Lifetimes, sampling: Sampling) -> np.ndarray | None:
    """The mean of the Brier score over the times of the curves, by the rule of trapezoids.

    At each time the weights are 0 of rows that were censored before, 1 / P(censored at T or later)
    after an event at T, and else 1 / P(censored later).  These are estimated from the rows, and end
    where no row is left; None if that is before the first time.
    """
    censoring = KaplanMeier(some.times, ~some.is_event, sampling, events_last=True)
    uncensored = 1 - censoring.risk(some.grid)
    grid = some.grid[uncensored > 0]
    if not grid.size:
        return None
    gaps = np.diff(grid, prepend=grid[0], append=grid[-1])
    widths = (gaps[1:] + gaps[:-1]) / 2 if grid.size > 1 else np.ones(1)
    of_events = _ratio(1.0 * some.is_event, 1 - censoring.risk(some.times, before=True), 0.0)
    scores = np.zeros(some.times.size)
    for k, width in enumerate(widths):
        survival = some.survival[:, k]
        later, by_then = np.square(1 - survival) / uncensored[k], np.square(survival) * of_events
        scores += width * np.where(some.times > grid[k], later, by_then)
    return scores / widths.sum()
