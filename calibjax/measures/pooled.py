"""Ratios of several groups, such as hospitals, pooled by a random-effects meta-analysis."""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calibjax.measures.measure import MeasureResult
from calibjax.measures.sampling import Interval


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
