"""The estimate of Kaplan and Meier, with weights, and what each row adds to its error.

S falls at the times of events by the factor 1 - d / Y, for the weights d of events and Y of rows at
risk.  The derivative of S(t) in the weight of row i is S(t) times

    sum_{s <= min(t, T_i)} d / (Y (Y - d)) - 1[event at T_i <= t] / (Y - d),

so that S(t) and these numbers are a mean of rows, with their weights, clusters and times.  The
variance of the mean of independent rows of equal weight is exactly that of Greenwood.

Reference: Kaplan and Meier, JASA 1958; Greenwood 1926; Efron, The jackknife, the bootstrap and
other resampling plans, 1982, for derivatives in weights.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibjax.measures.sampling import Interval, Sampling


class KaplanMeier:
    """P(Y > t) by right-censored times, each of them that of an event or of the last sight.

    Args:
        times: ``[m]``.
        is_event: whether there was an event, ``[m]``.
        sampling: the weights of the rows, and which depend on each other.
        events_last: whether other rows of the time of an event are no longer at risk, as those
            with an event are if censoring is what is estimated.
    """

    def __init__(
        self,
        times: np.ndarray,
        is_event: np.ndarray,
        sampling: Sampling,
        events_last: bool = False,
    ) -> None:
        self.sampling, shares = sampling, sampling.shares()
        self._steps, self._row = np.unique(times, return_inverse=True)
        self._is_event = is_event

        def at_times(weights: np.ndarray) -> np.ndarray:
            return np.bincount(self._row, weights, self._steps.size)

        events = at_times(shares * is_event)
        at_risk = np.cumsum(at_times(shares)[::-1])[::-1]
        if events_last:
            at_risk = at_risk - at_times(shares * ~is_event)
        # Sums of weights differ by rounding where all rows at risk have an event.
        survive = np.where(at_risk - events > 1e-12 * at_risk, at_risk - events, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(events > 0, survive / at_risk, 1.0)
            self._hazards = np.append(
                0.0, np.cumsum(np.where(events > 0, events / survive, 0.0) / at_risk)
            )
            self._after = np.where(is_event, 1 / survive[self._row], 0.0)
        self._curve = np.append(1.0, np.cumprod(kept))

    def survival(self, at: ArrayLike, *, before: bool = False) -> Any:
        """P(Y > t) at times t, or P(Y >= t)."""
        return self._curve[np.searchsorted(self._steps, at, "left" if before else "right")]

    def influence(self, at: float) -> np.ndarray:
        """Numbers of rows with the weighted mean 0, to whose mean S(t) owes its error, ``[m]``."""
        k = int(np.searchsorted(self._steps, at, "right"))
        events = np.where(self._row < k, self._after, 0.0)
        return self._curve[k] * (self._hazards[np.minimum(self._row + 1, k)] - events)

    def interval(self, at: float, level: float) -> Interval | None:
        """That of log(-log S), with the variance of Greenwood; None where S is 0 or 1."""
        from scipy.special import stdtrit

        survival = float(self.survival(at))
        if not 0 < survival < 1:
            return None
        error, freedom = self.error(at)
        quantile = stdtrit(freedom, (1 + level) / 2)
        power = math.exp(quantile * error / (survival * -math.log(survival)))
        return survival**power, survival ** (1 / power)

    def error(self, at: float) -> tuple[float, float]:
        """The standard error of S(t), and how many degrees of freedom it has."""
        values = self.influence(at)
        if self.sampling.is_plain:
            return math.sqrt(np.square(values).sum()) / values.size, math.inf
        return self.sampling.error(values)
