"""The likelihood of a logistic recalibration, and intervals of its ratio."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calibjax.intervals import Estimate
from calibjax.recalibration._labels import logistic_regression

# An interval whose end is not found below this size has no end.
_LARGEST = 1e6


class LogisticLikelihood(NamedTuple):
    """The likelihood of events whose logits are a + b l, for logits l of the model."""

    logits: np.ndarray
    happened: np.ndarray
    counts: np.ndarray

    def deviance(self, a: float, b: float) -> float:
        """-2 log likelihood; 0 in the limit of infinite a, where it agrees with all events."""
        if np.isinf(a):
            return 0.0
        sign = np.where(self.happened, -1.0, 1.0)
        return float(2 * self.counts @ np.logaddexp(0.0, sign * (a + b * self.logits)))

    def intercept(self, b: float) -> float:
        """The a of maximum likelihood: the expected number of events is the observed one."""
        from scipy.optimize import brentq
        from scipy.special import expit

        events = self.counts @ self.happened
        if self.happened.all() or not self.happened.any():
            return np.inf if self.happened.all() else -np.inf
        share = events / self.counts.sum()
        middle, moved = np.log(share) - np.log1p(-share), b * self.logits

        def excess(a: float) -> float:
            return float(self.counts @ expit(a + moved) - events)

        # Rounding must not put the root out of the bracket.
        low, high = middle - moved.max() - 1e-6, middle - moved.min() + 1e-6
        return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14))

    def profile_deviance(self, b: float) -> float:
        return self.deviance(self.intercept(b), b)

    def best_slope(self) -> tuple[float, float, str]:
        """The least deviance, the slope there, and words if that is infinite or unknown."""
        if self.happened.all() or not self.happened.any():
            all_or_none = "all rows" if self.happened.all() else "no row"
            return 0.0, np.nan, f"{all_or_none} had the event: there is no slope"
        if np.ptp(self.logits) == 0:
            return np.nan, np.nan, "all probabilities are equal: there is no slope"
        with_event, without = self.logits[self.happened], self.logits[~self.happened]
        for sign, high, low in ((1.0, with_event, without), (-1.0, without, with_event)):
            if high.min() >= low.max():
                words = "one probability parts events from the other rows: the slope is infinite"
                return self._deviance_of_ties(float(low.max())), sign * np.inf, words
        centre, spread = np.mean(self.logits), np.std(self.logits)
        features = np.stack([np.ones_like(self.logits), (self.logits - centre) / spread], axis=1)
        slope = float(logistic_regression(features, self.happened, self.counts).numbers[1] / spread)
        return self.profile_deviance(slope), slope, ""

    def _deviance_of_ties(self, at: float) -> float:
        """What an infinite slope leaves: rows whose logit is the one that parts the others."""
        tied = self.logits == at
        total, events = self.counts[tied].sum(), self.counts[tied] @ self.happened[tied]
        shares = np.array([events, total - events]) / total
        return float(-2 * total * np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))


def profile_interval(
    deviance: Callable[[float], float], best: float, least: float, quantile: float
) -> Estimate:
    """The numbers whose deviance is at most the least one plus the quantile."""
    from scipy.optimize import brentq

    def excess(x: float) -> float:
        return deviance(x) - least - quantile

    def end(direction: float) -> float:
        if best == direction * np.inf:
            return best
        # From an infinite estimate the way begins where the ratio is not yet rejected.
        start = best if np.isfinite(best) else -direction * _first_inside(excess, -direction)
        inside, length = start, 1.0
        while excess(start + direction * length) < 0:
            inside, length = start + direction * length, 2 * length
            if length > _LARGEST:
                return direction * np.inf
        return float(brentq(excess, inside, start + direction * length, xtol=1e-10))

    return Estimate(float(best), end(-1.0), end(1.0))


def _first_inside(excess: Callable[[float], float], direction: float) -> float:
    """A power of two whose number in this direction, from 0, is in the interval."""
    length = 1.0
    while excess(direction * length) > 0 and length < _LARGEST:
        length *= 2
    return length


def chi_squared_quantile(level: float) -> float:
    """The quantile of the squared standard normal variable."""
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2) ** 2)
