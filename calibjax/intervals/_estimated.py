"""A number with its confidence interval."""

import math
from typing import NamedTuple


class Estimated(NamedTuple):
    """A number with its confidence interval, which is NaN where there is none.

    Example:
        >>> import calibjax as cj
        >>> cj.Estimated(0.25, 0.2, 0.3)
        0.25 (0.2 … 0.3)
    """

    estimate: float
    low: float
    high: float

    def __repr__(self) -> str:
        if math.isnan(self.low):
            return f"{self.estimate:.4g} (no interval)"
        return f"{self.estimate:.4g} ({self.low:.4g} … {self.high:.4g})"
