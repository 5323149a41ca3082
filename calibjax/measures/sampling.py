"""Confidence intervals for a mean and for a share of rows, and which of these are independent."""

import dataclasses
import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from calibjax._data.data import Data


class Estimate(NamedTuple):
    """A number with its confidence interval, or NaN.

    Example:
        >>> import calibjax as cj
        >>> cj.Estimate(0.25, 0.2, 0.3)
        0.25 (0.2 … 0.3)
    """

    estimate: float
    low: float
    high: float

    def __repr__(self) -> str:
        if math.isnan(self.low):
            return f"{self.estimate:.4g} (no interval)"
        return f"{self.estimate:.4g} ({self.low:.4g} … {self.high:.4g})"


# Maximum distance, in horizons, of rows whose errors count as correlated.
_WINDOW = 3.0


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Weights and dependence of n rows.

    Args:
        n: the number of rows.
        weights, clusters, times: those of `Data` that has checked them, ``[n]``, or None.
    """

    n: int
    weights: np.ndarray | None = None
    clusters: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of_data(cls, data: Data, n: int | None = None) -> "Sampling":
        """That of the first n rows, or of the kept rows if these come first."""
        n, columns = n or data.n_kept(), (data.weights, data.clusters, data.times)
        return cls(n, *(None if x is None else np.asarray(x)[:n] for x in columns))

    def of_rows(self, rows: np.ndarray) -> "Sampling":
        """That of some rows, given by their indices or by truth values ``[n]``.

        Equal weights count as no weights.
        """
        weights, clusters, times = (
            None if x is None else x[rows] for x in (self.weights, self.clusters, self.times)
        )
        if clusters is not None:
            clusters = np.unique(clusters, return_inverse=True)[1]
        if weights is not None and np.ptp(weights) == 0:
            weights = None
        return Sampling(np.arange(self.n)[rows].size, weights, clusters, times)

    @property
    def is_dependent(self) -> bool:
        """Whether rows may depend on each other."""
        return self.clusters is not None or self.times is not None

    @property
    def is_plain(self) -> bool:
        """Whether all rows count the same and none depends on others."""
        return self.weights is None and not self.is_dependent

    def shares(self) -> np.ndarray:
        """The weights of the rows, whose sum is 1, ``[n]``."""
        weights = np.ones(self.n) if self.weights is None else self.weights.astype(np.float64)
        return weights / weights.sum()

    def n_effective(self) -> float:
        """The effective sample size of independent rows.

        It is (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965).
        """
        return float(1 / np.square(self.shares()).sum())

    def n_units(self) -> int:
        """How many rows, clusters or times there are."""
        units = self.times if self.clusters is None else self.clusters
        return self.n if units is None else np.unique(units).size

    def units(self, values: np.ndarray) -> np.ndarray:
        """Independent numbers whose mean, and its standard error, are those of the weighted mean.

        For weights w and the mean m they are m + G sum_i w_i (x_i - m) / sum_j w_j, each over the
        rows of one of G clusters, or over one row.
        """
        if self.is_plain:
            return values
        middle = self.shares() @ values
        parts = self.shares() * (values - middle)
        if self.clusters is not None:
            parts = np.bincount(self.clusters, parts)
        return middle + parts.size * parts

    def error(self, values: np.ndarray) -> tuple[float, float]:
        """The standard error of the mean, and how many degrees of freedom it has.

        Over times the covariance of two rows at the distance d is taken with the weight
        max(0, 1 - d / L), so that the variance of the mean is the integral of squares of sums over
        windows of the width L.  Subtracting the mean makes it smaller by the factor 1 - b + b^2 / 3
        with b = L / T for T times (Kiefer and Vogelsang, A new asymptotic theory for
        heteroskedasticity-autocorrelation robust tests, 2005).
        """
        if self.times is None:
            units = self.units(values)
            return float(units.std(ddof=1) / units.size**0.5), units.size - 1.0
        shares, times = self.shares(), self.times.astype(np.float64)
        parts = shares * (values - shares @ values)
        ends = np.concatenate([times, times + _WINDOW])
        order = np.argsort(ends, kind="stable")
        sums = np.cumsum(np.concatenate([parts, -parts])[order])
        variance = np.square(sums[:-1]) @ np.diff(ends[order]) / _WINDOW
        # T times have some T / L windows, which determine a variance as T / L rows do.
        gaps = np.diff(np.unique(times))
        covered = np.minimum(gaps, _WINDOW).sum() * (1 + 1 / gaps.size)
        freedom = max(float(covered) / _WINDOW - 1, 1.0)
        b = 1 / (freedom + 1)
        return float((variance / (1 - b + b**2 / 3)) ** 0.5), freedom

    def pvalue(self, values: np.ndarray) -> float:
        """That of Student's two-sided test whether the mean is 0; of k columns, Hotelling's."""
        from scipy.special import fdtrc

        columns = values.T.reshape(-1, len(values))
        means = columns @ self.shares()
        k, (_, freedom) = len(columns), self.error(columns[0])
        left = freedom - k + 1
        # The variances of sums of two columns have their covariances.
        square = np.array([[self.error(x + y)[0] ** 2 for x in columns] for y in columns])
        own = np.diag(square) / 4
        if left <= 0 or not own.all():
            return float(not np.any(means)) if k == 1 else math.nan
        statistic = means @ np.linalg.solve((square - own - own[:, None]) / 2, means)
        return float(fdtrc(k, left, statistic * left / (k * freedom)))


Interval = tuple[float, float]
# Skewness of rows, over the root of their number, below which they are taken for symmetric.
_SYMMETRIC = 1e-6


def mean_interval(
    values: np.ndarray,
    confidence_level: float,
    possible: Interval = (-np.inf, np.inf),
    sampling: Sampling | None = None,
    has_skewness: bool = True,
) -> Interval | None:
    """Student's interval for the mean of the rows, corrected for skewness; None if one is infinite.

    It ends at the bounds of what is possible, or at the mean if rounding put it outside.

    Scores are skewed: most rows are good, and a few are bad.  An interval mean ± z standard errors
    then ends too low, because data without a bad row have a small mean and a small error at once.
    With the skewness g of the rows, a = g / sqrt(n), and T = (mean - mu) / standard error,

        x(T) = T + a T^2 / 3 + a^2 T^3 / 27 + a / 6 = ((1 + a T / 3)^3 - 1) / a + a / 6

    is more nearly a Student variable than T is.  It increases, and the ends of the interval are
    where it is one of the two quantiles (Hall, On the removal of skewness by transformation, 1992).
    `benchmarks/INTERVALS.md` counts how often it contains the mean.

    With weights or clusters, the rows are those of `Sampling.units`.  Over times it is Student's
    interval, without a correction.
    """
    from scipy.special import stdtrit

    values = np.asarray(values, np.float64)
    if not np.isfinite(values).all():
        return None
    sampling = sampling or Sampling(len(values))
    error, freedom = sampling.error(values)
    units = sampling.units(values)
    middle = units.mean()
    x = stdtrit(freedom, (1 + confidence_level) / 2) * np.array([1.0, -1.0])
    a = 0.0
    if has_skewness and sampling.times is None:
        a = _skewness(units - middle) / units.size**0.5
    if abs(a) > _SYMMETRIC:
        x = 3 / a * (np.cbrt(1 + a * (x - a / 6)) - 1)
    least, most = min(possible[0], middle), max(possible[1], middle)
    low, high = np.clip(middle - x * error, least, most)
    return float(low), float(high)


def _skewness(deviations: np.ndarray) -> float:
    """The skewness of the rows, with the factor of k-statistics; 0 if they are equal or two."""
    n, largest = len(deviations), np.abs(deviations).max()
    if n < 3 or largest == 0:
        return 0.0
    # In units of the largest: powers of small numbers may underflow.
    second, third = (np.mean((deviations / largest) ** k) for k in (2, 3))
    return float(third / second**1.5 * (n * (n - 1)) ** 0.5 / (n - 2))


def wilson_interval(
    hits: np.ndarray, confidence_level: float, sampling: Sampling | None = None
) -> Interval:
    """The interval of Wilson (JASA 1927) for the probability of a hit.

    With weights, clusters or times, n is the effective sample size, and the quantile is Student's
    (Korn and Graubard, Survey Methodology 1998).
    """
    hits = np.asarray(hits, np.float64)
    n: float = len(hits)
    z, share = NormalDist().inv_cdf((1 + confidence_level) / 2), float(hits.mean())
    if sampling is not None and not sampling.is_plain:
        from scipy.special import stdtrit

        share = float(sampling.shares() @ hits)
        error, freedom = sampling.error(hits)
        z = float(stdtrit(freedom, (1 + confidence_level) / 2))
        # If all rows are alike, those of a cluster may be copies of each other.
        n = min(n, share * (1 - share) / error**2 if error > 0 else freedom + 1)
    low, high = share_bound(share, z**2 / n, np.array([-1, 1])).tolist()
    return low, high


def share_bound(share: ArrayLike, a: ArrayLike, sign: ArrayLike) -> np.ndarray:
    """The root q of (share - q)^2 = a q (1 - q) below or above the share, by the sign."""
    share, a = np.asarray(share), np.asarray(a)
    root = np.sqrt(a * (a + 4 * share * (1 - share)))
    return np.clip((2 * share + a + sign * root) / (2 * (1 + a)), 0.0, 1.0)
