"""Confidence intervals for a mean and for a share of rows."""

from statistics import NormalDist

import numpy as np

from calibjax.intervals._sampling import Sampling

Interval = tuple[float, float]
# Rows with a smaller skewness, over the root of their number, are taken for symmetric.
_SYMMETRIC = 1e-6


def mean_interval(
    values: np.ndarray,
    confidence_level: float,
    possible: Interval = (-np.inf, np.inf),
    sampling: Sampling | None = None,
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

    Of rows with weights, or in clusters, the rows are those of `Sampling.units`.  Over times the
    interval is that of Student, without a correction.
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
    a = 0.0 if sampling.times is not None else _skewness(units - middle) / units.size**0.5
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

    Of rows with weights, in clusters or over times n is the number of independent rows whose share
    is as certain, and the quantile is that of Student (Korn and Graubard, Survey Methodology 1998).
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
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
