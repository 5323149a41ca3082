"""Published rates beside ours: their differences in standard errors, and a table of them.

Both rates are of random data sets: the variance of their difference is the binomial one at the
pooled rate (k + 1) / (N + 2), which is not 0 where no test errs.  Where a published rate is that of
*one* draw of something else, such as test locations, ours is the mean over L draws of it, each with
its own data sets, and (1 + 1/L) times the variance between draws is added: that of the L rates,
less their binomial noise.
"""

import math
import sys
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

THRESHOLD = 4.0
# Of p-values: a test may refuse some data sets, and these do not count.
MAX_MISSING = 0.01


class Comparison(NamedTuple):
    """A published rate, and our errors ``[L, N]`` of L draws and N data sets for each of them."""

    setting: str
    test: str
    n: int
    published: float
    published_sets: int
    errors: np.ndarray

    @property
    def rate(self) -> float:
        return np.nanmean(self.errors)

    def difference(self) -> float:
        """Ours less the published one, in standard errors."""
        sets = np.sum(~np.isnan(self.errors)), self.published_sets
        pooled = (sets[0] * self.rate + sets[1] * self.published + 1) / (sum(sets) + 2)
        variance = pooled * (1 - pooled) * (1 / sets[0] + 1 / sets[1])
        n_draws, n_sets = self.errors.shape
        if n_draws > 1:
            rates = np.nanmean(self.errors, axis=1)
            noise = np.mean(rates * (1 - rates)) / (n_sets - 1)
            variance += max(0.0, np.var(rates, ddof=1) - noise) * (1 + 1 / n_draws)
        return (self.rate - self.published) / math.sqrt(variance)


def errors_at(level: float, pvalues: np.ndarray, calibrated: bool) -> np.ndarray:
    """1 for each error at this level, 0 for each right decision, NaN where there is no p-value."""
    missing = np.isnan(pvalues)
    if np.mean(missing) > MAX_MISSING:
        raise ValueError(f"{np.mean(missing):.1%} of the p-values are NaN.")
    return np.where(missing, np.nan, (pvalues < level) == calibrated)


def report(comparisons: Iterable[Comparison], check: bool) -> None:
    """Prints a table; if `check`, exits with an error where a difference is too large."""
    print("| setting | test | n | published | ours | difference / s.e. |")
    print("|---|---|---|---|---|---|")
    largest = 0.0
    for row in comparisons:
        difference = row.difference()
        rates = f"{row.published:.4f} | {row.rate:.4f} | {difference:+.1f}"
        print(f"| {row.setting} | {row.test} | {row.n} | {rates} |", flush=True)
        largest = max(largest, abs(difference))
    print(f"\nLargest |difference| / s.e.: {largest:.1f}")
    if check and largest > THRESHOLD:
        sys.exit(f"A rate differs by more than {THRESHOLD} standard errors.")
