r"""Risks by the times of survival curves, and their Brier scores, of right-censored targets.

What a model predicts of the event "Y <= t" is F(t) = 1 - S(t), and given all that was seen of a row

    F(t | seen) = 1 after an event by t,  0 if seen beyond t,  1 - S(t) / S(c) if censored at c < t.

Its mean is F(t) if the model is calibrated, whatever censors, if only that is independent of the
target given the prediction.  The difference is a martingale in t, whose variance given what was
seen is the mean of S(t)^2 (1 / S(T)^2 - 1) / 2, with T the end of what was seen, at most t.  Both
are the p-value of a time.  The estimate of Kaplan and Meier, which is shown beside the mean of F,
needs censoring that does not depend on the prediction either, and so does the integrated Brier
score.

Reference: Graf, Schmoor, Sauerbrei and Schumacher, Statistics in Medicine 1999, for the score;
McLernon et al., Assessing performance and clinical usefulness in prediction models with survival
outcomes, Annals of Internal Medicine 2023, for observed / expected.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from calibjax._data.data import Data
from calibjax._data.interval_censored import Between
from calibjax.distributions import SurvivalCurve
from calibjax.measures.kaplan_meier import KaplanMeier
from calibjax.measures.measure import Measure, MeasureResult, NumberOfRows, Subset, ratio_of_means
from calibjax.measures.sampling import Sampling

#: Names of the share of events by a time, and of its ratio to what was predicted.
RISK_BY, RATIO_BY = "risk by ", "observed / expected by "
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
        predictions, targets, n = data.predictions, data.targets, data.n_kept()
        if not (isinstance(predictions, SurvivalCurve) and isinstance(targets, Between)):
            return None
        grid, probs, low, high = (
            np.asarray(x, np.float64)[:n]
            for x in (predictions.times, predictions.probs, targets.low, targets.high)
        )
        is_event = low == high
        if np.any(grid != grid[0]) or not (is_event | np.isposinf(high)).all():
            return None
        survival = np.minimum.accumulate(np.clip(probs, 0.0, 1.0), axis=1)
        return cls(grid[0], survival, low, is_event) if is_event.any() else None

    def chosen(self, index: np.ndarray) -> "Lifetimes":
        """Some of the rows."""
        of_rows = (x[index] for x in (self.survival, self.times, self.is_event))
        return Lifetimes(self.grid, *of_rows)

    def last_time(self) -> float:
        """If somebody is left at the last time that was seen, nothing is known of later ones."""
        last = self.times.max()
        return math.inf if self.is_event[self.times == last].all() else float(last)

    def shown(self) -> list[int]:
        """Which times have a line: at most five that divide the grid evenly, with the last one."""
        known = np.flatnonzero((self.grid > 0) & (self.grid <= self.last_time()))
        if known.size <= _MOST_TIMES:
            return known.tolist()
        ranks = np.linspace(0, known.size, _MOST_TIMES + 1)[1:].round().astype(int) - 1
        return known[ranks].tolist()

    def residuals(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """F(t | seen) - F(t) by time k, and its variances, ``[n]``."""
        end, starts = np.minimum(self.times, self.grid[k]), np.append(0.0, self.grid[:-1])
        cell = np.maximum(np.searchsorted(starts, end, "right") - 1, 0)
        width, row = self.grid[cell] - starts[cell], np.arange(end.size)
        share = np.where(width > 0, (end - starts[cell]) / np.where(width > 0, width, 1.0), 1.0)
        start = np.where(cell > 0, self.survival[row, cell - 1], 1.0)
        at_end, at = (1 - share) * start + share * self.survival[row, cell], self.survival[:, k]
        # Where S is 0 already, an event was certain.
        left = np.where(at_end > 0, at / np.where(at_end > 0, at_end, 1.0), 0.0)
        is_event = self.is_event & (self.times <= self.grid[k])
        return at - np.where(is_event, 0.0, left), (np.square(left) - np.square(at)) / 2

    def pvalue_of_censoring(self) -> float:
        """That of the score test whether censoring depends on the rank of the predicted risk (Cox).

        Rows of the time of an event are at risk of censoring if they had none.
        """
        from scipy.special import erfc
        from scipy.stats import rankdata

        rank = rankdata(-self.survival.sum(axis=1)) / self.times.size
        steps, step = np.unique(self.times, return_inverse=True)

        def sums(values: np.ndarray) -> np.ndarray:
            return np.bincount(step, values, steps.size)

        lost = sums(~self.is_event)
        n, *moments = (
            np.cumsum(sums(x)[::-1])[::-1] - sums(x * self.is_event)
            for x in (np.ones(rank.size), rank, np.square(rank))
        )
        mean, square = moments / np.maximum(n, 1.0)
        spread = lost * (n - lost) / np.maximum(n - 1, 1.0)
        variance = spread @ np.maximum(square - np.square(mean), 0.0)
        size = abs(sums(rank * ~self.is_event).sum() - lost @ mean)
        return float(erfc(size / math.sqrt(2 * variance))) if variance > 0 else 1.0


def measures_by_time(data: Data) -> dict[str, NumberOfRows]:
    """By some times of curves on one grid the risk and O/E, and the integrated Brier score.

    None unless targets are censored on the right alone.
    """
    lifetimes = Lifetimes.of(data)
    if lifetimes is None:
        return {}

    @functools.cache
    def estimated(rows: Subset) -> tuple[Lifetimes, KaplanMeier]:
        some = lifetimes.chosen(rows.index)
        return some, KaplanMeier(some.times, some.is_event, rows.sampling)

    def by_time(number: Any, k: int, rows: Subset) -> MeasureResult | None:
        some, observed = estimated(rows)
        is_known = some.grid[k] <= some.last_time() and some.is_event.any()
        return number(some, observed, k, rows) if is_known else None

    found: dict[str, NumberOfRows] = {}
    for k in lifetimes.shown():
        time = f"{lifetimes.grid[k]:.4g}"
        found[RISK_BY + time] = functools.partial(by_time, _risk, k)
        found[RATIO_BY + time] = functools.partial(by_time, _ratio, k)
    return found | {"integrated Brier score": lambda rows: _brier(estimated(rows)[0], rows)}


def _risk(some: Lifetimes, observed: KaplanMeier, k: int, rows: Subset) -> MeasureResult:
    """The share of events of Kaplan and Meier, beside the mean of what curves say."""
    ends, value = observed.interval(some.grid[k], rows.level), observed.survival(some.grid[k])
    predicted = float(rows.sampling.shares() @ (1 - some.survival[:, k]))
    interval = None if ends is None else (1 - ends[1], 1 - ends[0])
    pvalue = _pvalue(*some.residuals(k), rows)
    return MeasureResult(1 - float(value), interval, (predicted, predicted), pvalue)


def _pvalue(residuals: np.ndarray, variances: np.ndarray, rows: Subset) -> float:
    """That of the mean of residuals being 0, whose variance is known if rows are independent."""
    from scipy.special import erfc

    if rows.sampling.is_dependent:
        return rows.sampling.pvalue(residuals)
    shares = rows.sampling.shares()
    size, variance = abs(float(shares @ residuals)), float(np.square(shares) @ variances)
    return float(erfc(size / math.sqrt(2 * variance))) if variance > 0 else float(size == 0)


def _ratio(some: Lifetimes, observed: KaplanMeier, k: int, rows: Subset) -> MeasureResult | None:
    """The share of events of Kaplan and Meier, divided by the mean of what curves say."""
    predicted, survival = 1 - some.survival[:, k], float(observed.survival(some.grid[k]))
    if survival in (0.0, 1.0) or not predicted.any():
        return None
    # The share is a mean of rows, up to terms that are smaller than its error.
    columns = np.stack([1 - survival - observed.influence(some.grid[k]), predicted], axis=1)
    return _of_all(Measure(columns, ratio_of_means, expected=(1.0, 1.0), is_ratio=True), rows)


def _brier(some: Lifetimes, rows: Subset) -> MeasureResult | None:
    """The mean of `brier_rows`, with weights that are taken as known in the interval."""
    scores = brier_rows(some, rows.sampling)
    return None if scores is None else _of_all(Measure(scores, possible=(0.0, math.inf)), rows)


def brier_rows(some: Lifetimes, sampling: Sampling) -> np.ndarray | None:
    """The mean of the Brier score over the times of the curves, by the rule of trapezoids.

    At each time the weights are 0 of rows that were censored before, 1 / P(censored at T or later)
    after an event at T, and else 1 / P(censored later).  These are estimated from the rows, and end
    where nobody is left; None if that is before the first time.
    """
    censoring = KaplanMeier(some.times, ~some.is_event, sampling, events_last=True)
    uncensored = censoring.survival(some.grid)
    grid = some.grid[uncensored > 0]
    if not grid.size:
        return None
    gaps = np.diff(grid, prepend=grid[0], append=grid[-1])
    widths = (gaps[1:] + gaps[:-1]) / 2 if grid.size > 1 else np.ones(1)
    before = censoring.survival(some.times, before=True)
    of_events = np.where(some.is_event, 1 / np.where(some.is_event, before, 1.0), 0.0)
    scores = np.zeros(some.times.size)
    for k, width in enumerate(widths):
        survival = some.survival[:, k]
        later, by_then = np.square(1 - survival) / uncensored[k], np.square(survival) * of_events
        scores += width * np.where(some.times > grid[k], later, by_then)
    return scores / widths.sum()


def _of_all(measure: Measure, rows: Subset) -> MeasureResult:
    """A measure whose columns have these rows alone."""
    return measure(dataclasses.replace(rows, index=np.arange(rows.index.size)))
