"""The estimate of Kaplan and Meier, with weights, and what each row adds to its error.

S falls at the times of events by the factor 1 - d / Y, for the weights d of events and Y of rows at
risk.  The derivative of 1 - S(t) in the weight of row i is S(t) times

    1[event at T_i <= t] / (Y - d) - sum_{s <= min(t, T_i)} d / (Y (Y - d)),

so that 1 - S(t) and these numbers are a mean of rows, with their weights, clusters and times.  The
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
    """P(Y <= t) by right-censored times, each of them that of an event or of the last sight.

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
        events, others = (np.bincount(self._row, shares * x) for x in (is_event, ~is_event))
        at_risk = np.cumsum((events + others)[::-1])[::-1] - (others if events_last else 0.0)
        # Sums of weights differ by rounding where all rows at risk have an event.
        left = np.where(at_risk - events > 1e-12 * at_risk, at_risk - events, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = np.where(events > 0, left / at_risk, 1.0)
            hazards = np.where(events > 0, events / (left * at_risk), 0.0)
            self._of_event = np.where(is_event, 1 / left[self._row], 0.0)
        self._survival, self._hazards = (
            np.append(1.0, np.cumprod(factors)),
            np.append(0.0, np.cumsum(hazards)),
        )

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
