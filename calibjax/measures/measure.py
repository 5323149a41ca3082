"""Numbers of a data set, each of which is the same function of all rows and of those of a group.

A `Measure` is a function g of weighted means of columns of rows.  Its interval is that of a mean:
to first order g is the mean of

    g(m) + sum_j dg/dm_j (x_ij - m_j)

over the rows i (delta method), which are independent, in clusters, or over times (`Sampling`).

Ratios of several groups, such as hospitals, are pooled by a random-effects meta-analysis.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple, Self

import numpy as np
from jax.typing import ArrayLike

from calibjax._base.text import named_rows
from calibjax._data.data import Data
from calibjax.measures.sampling import Interval, Sampling, mean_interval, wilson_interval
from calibjax.nulls.ranks import host_pvalue

# Relative rounding of a calibration error: data sets without any event are equal, and must tie.
_ROUNDING = 1e-9
# Names of the means of what is predicted and observed: of an event, of the confidence in the most
# likely class and its accuracy, or of numbers.
PREDICTED, OBSERVED = "predicted", "observed"
# The step of a derivative, relative to the size of a column: the error is about its square.
_STEP = 1e-5


@dataclasses.dataclass(frozen=True)
class MeasureResult:
    """A number that says how good predictions are.

    Args:
        value: the number.
        interval: a confidence interval for it, from the rows; or None.
        if_calibrated: where it would lie, with the same probability, if targets were drawn from the
            predictions, or twice its mean; or None.
        pvalue: for a measure of calibration, how often such targets show at least as much; or None.
        n_draws: the number of data sets of such targets that the p-value is from; or None.
        note: words instead of all but the value, such as which rows have no number; or None.
    """

    value: float
    interval: Interval | None = None
    if_calibrated: Interval | None = None
    pvalue: float | None = None
    n_draws: int | None = None
    note: str | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Subset:
    """The rows that a number is computed from: those of a weight above 0, of all or of one group.

    Args:
        index: which rows of the data these are, in increasing order, ``[m]``.
        sampling: their weights, and which of them depend on each other.
        level: the confidence level of intervals.
        names: what the rows of the data are called.
        group: the number of the group.
    """

    index: np.ndarray
    sampling: Sampling
    level: float
    names: np.ndarray
    group: int = 0

    @classmethod
    def of(
        cls,
        data: Data,
        level: float,
        groups: Sequence[np.ndarray] | None = None,
        names: np.ndarray | None = None,
    ) -> list[Self]:
        """The rows of each group, given by their indices among the kept rows, which come first.

        Without groups there is one, of all rows.
        """
        n, sampling = data.n_kept(), Sampling.of_data(data)
        names = np.arange(n) if names is None else names
        every, counts = [np.arange(n)] if groups is None else groups, sampling.shares() > 0
        counted = [rows[counts[rows]] for rows in every]
        return [cls(x, sampling.of_rows(x), level, names, k) for k, x in enumerate(counted)]

    def alone(self) -> Self:
        """The same rows, for columns ``[m]`` of these rows alone."""
        names = self.names[self.index]
        return dataclasses.replace(self, index=np.arange(self.index.size), names=names)


#: A number of some rows; None if these do not have it.
NumberOfRows = Callable[[Subset], MeasureResult | None]


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that is a function of weighted means of columns of rows, as a function of the rows.

    Args:
        columns: k numbers of each row, ``[n, k]``, or one, ``[n]``; filled up or not.
        function: g, of means ``[..., k]``; None for the mean of one column.
        possible: the smallest and the largest value.
        expected: the mean of a calibrated model, twice, or two bounds for it; None if not known.
        drawn: means of the columns of data sets whose targets are drawn from the predictions, in
            each group, and last those of the observed targets, ``[R + 1, G, k]``; or None.
        is_share: whether rows are hits, 1 or 0, for Wilson's interval.
        is_ratio: whether the interval is that of log g.
        error: a function of the means of drawn and observed data sets that grows with a calibration
            error, for a p-value; or None.
        has_interval: whether there is an interval: not for an error that is never negative.
        has_skewness: whether the interval is corrected for the skewness of the rows.
    """

    columns: ArrayLike
    function: Callable[[np.ndarray], np.ndarray] | None = None
    possible: Interval = (-math.inf, math.inf)
    expected: Interval | None = None
    drawn: np.ndarray | None = None
    is_share: bool = False
    is_ratio: bool = False
    error: Callable[[np.ndarray], np.ndarray] | None = None
    has_interval: bool = True
    has_skewness: bool = True

    def __call__(self, rows: Subset) -> MeasureResult:
        x = np.asarray(self.columns)[rows.index].astype(np.float64).reshape(rows.index.size, -1)
        lost = rows.index[np.isnan(x).any(axis=1)]
        if lost.size:
            return MeasureResult(math.nan, note=f"NaN in {named_rows(rows.names[lost])}")
        sampling = rows.sampling
        means = x.mean(axis=0) if sampling.is_plain else sampling.shares() @ x
        value, drawn, errors = float(self.of_means(means)), None, None
        if self.drawn is not None:
            of_group = self.drawn[:, rows.group]
            drawn = self.of_means(of_group)
            errors = None if self.error is None or sampling.is_dependent else self.error(of_group)
        if errors is None and self.error is not None and not self.has_interval:
            why = "rows are dependent" if sampling.is_dependent else "weights depend on the outcome"
            return MeasureResult(value, note=f"p omitted: {why}")
        interval = self._interval(x, means, rows) if self.has_interval else None
        found = MeasureResult(value, interval, self._if_calibrated(rows, drawn))
        if errors is None:
            return found
        pvalue = host_pvalue(errors, _ROUNDING)
        return dataclasses.replace(found, pvalue=pvalue, n_draws=len(errors) - 1)

    def of_means(self, means: np.ndarray) -> np.ndarray:
        return means[..., 0] if self.function is None else self.function(means)

    def _interval(self, x: np.ndarray, means: np.ndarray, rows: Subset) -> Interval | None:
        sampling, level = rows.sampling, rows.level
        if sampling.n_units() < 2:
            return None
        values = x[:, 0] if self.function is None else _linear(self.function, x, means)
        if self.is_share:
            return wilson_interval(values, level, sampling)
        if not self.is_ratio:
            return mean_interval(values, level, self.possible, sampling, self.has_skewness)
        value = float(self.of_means(means))
        ends = mean_interval(values / value, level, sampling=sampling) if value > 0 else None
        return ends and (value * math.exp(ends[0] - 1), value * math.exp(ends[1] - 1))

    def _if_calibrated(self, rows: Subset, drawn: np.ndarray | None) -> Interval | None:
        """Where the value of a calibrated model lies.

        If rows depend on each other, only the mean is known.
        """
        tail, n = (1 - rows.level) / 2, rows.index.size
        if drawn is not None and rows.sampling.is_dependent:
            return float(drawn[:-1].mean()), float(drawn[:-1].mean())
        if drawn is not None:
            low, high = np.quantile(drawn[:-1], [tail, 1 - tail], method="nearest")
        elif self.expected is None or not (self.is_share and rows.sampling.is_plain):
            return self.expected
        else:
            from scipy.special import bdtr

            low, high = (
                np.searchsorted(bdtr(np.arange(n + 1), n, p), q) / n
                for p, q in zip(self.expected, (tail, 1 - tail), strict=True)
            )
        return float(low), float(high)


def ratio_of_means(means: np.ndarray) -> np.ndarray:
    """The mean of the first column, divided by that of the second."""
    return means[..., 0] / means[..., 1]


def _linear(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, means: np.ndarray
) -> np.ndarray:
    """Numbers of rows whose mean is g(m), and varies as g does for small errors of the means m."""
    sizes = np.abs(means) + np.abs(x - means).mean(axis=0)
    steps = _STEP * np.where(sizes > 0, sizes, 1.0)
    ends = means + np.diag(steps), means - np.diag(steps)
    above, below = map(function, ends)
    return function(means) + (x - means) @ ((above - below) / (2 * steps))


class Pooled(NamedTuple):
    """The ratio of a typical group, and of a new one; see `pooled_ratio`.

    Args:
        value: observed / expected of a typical group.
        interval: its confidence interval.
        tau2: the variance of log (observed / expected) between groups.
        prediction_interval: where the ratio of a new group lies; None with two groups.
        n_groups: the number of groups that have an interval.
        level: the confidence level.
    """

    value: float
    interval: Interval
    tau2: float
    prediction_interval: Interval | None
    n_groups: int
    level: float

    def __str__(self) -> str:
        level = f"{100 * self.level:.3g} %"
        words = f"pooled O/E of {self.n_groups} groups {self.value:.2f} ({level} CI "
        words += "{:.2f} to {:.2f}), tau² {:.2g}".format(*self.interval, self.tau2)
        if self.prediction_interval is None:
            return words
        low, high = self.prediction_interval
        return f"{words}; {level} prediction interval of a new group {low:.2f} to {high:.2f}"


def pooled_ratio(ratios: Sequence[MeasureResult | None], level: float) -> Pooled | None:
    """The ratio of a typical group; None unless two groups have an interval.

    With log ratios x_g, their standard errors s_g and the variance tau^2 between groups (moment
    estimate of DerSimonian and Laird), the mean has the weights 1 / (s_g^2 + tau^2).  A new group
    has the standard deviation (tau^2 + s^2)^{1/2}, and Student's distribution with G - 2 degrees of
    freedom (Higgins, Thompson and Spiegelhalter, JRSS A 2009).  A standard error is the length of
    the interval of a group on the log scale, over that of a normal variable.

    Args:
        ratios: those of the groups, or None.
        level: the confidence level of all intervals.
    """
    from scipy.special import stdtrit

    known = [(x.value, *x.interval) for x in ratios if x is not None and x.interval is not None]
    if len(known) < 2:
        return None
    z, tail = NormalDist().inv_cdf((1 + level) / 2), (1 + level) / 2
    logs, low, high = np.log(known).T
    variances = np.square((high - low) / (2 * z))
    fixed = 1 / variances
    spread = fixed @ np.square(logs - fixed @ logs / fixed.sum())
    excess = spread - (len(known) - 1)
    tau2 = max(float(excess / (fixed.sum() - np.square(fixed).sum() / fixed.sum())), 0.0)
    weights = 1 / (variances + tau2)
    middle, variance = float(weights @ logs / weights.sum()), float(1 / weights.sum())

    def ends(factor: float, variance: float) -> Interval:
        half = factor * math.sqrt(variance)
        return math.exp(middle - half), math.exp(middle + half)

    of_new = None
    if len(known) > 2:
        of_new = ends(float(stdtrit(len(known) - 2, tail)), tau2 + variance)
    return Pooled(math.exp(middle), ends(z, variance), tau2, of_new, len(known), level)
