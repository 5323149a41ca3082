"""How rows count, and which of them depend on each other, in means of rows."""

import dataclasses

import numpy as np

from calibjax._rows import Data

# Rows less than so many horizons apart have a common part of the error, as in the test.
_WINDOW = 3.0


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Weights and dependence of n rows.

    Args:
        n: the number of rows.
        weights: how much each counts, ``[n]``; None if all count 1.
        clusters: the number of the cluster of each, ``[n]``; None if there are none.
        times: times in units of the horizon, ``[n]``; None if there are none.
    """

    n: int
    weights: np.ndarray | None = None
    clusters: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of_data(cls, data: Data) -> "Sampling":
        """That of the n kept rows, which come first."""
        n, columns = data.n_kept(), (data.weights, data.clusters, data.times)
        return cls(n, *(None if x is None else np.asarray(x)[:n] for x in columns))

    def of_rows(self, counts: np.ndarray) -> "Sampling":
        """That of the rows that count, given as truth values ``[n]``."""
        weights, clusters, times = (
            None if x is None else x[counts] for x in (self.weights, self.clusters, self.times)
        )
        if clusters is not None:
            clusters = np.unique(clusters, return_inverse=True)[1]
        return Sampling(int(counts.sum()), weights, clusters, times)

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
        """So many rows of equal weight have a mean as certain as that of independent rows.

        It is (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965).
        """
        return float(1 / np.square(self.shares()).sum())

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
        max(0, 1 - d / L), as the multipliers of the test do (`resampling/_multipliers.py`), so that
        the variance of the mean is the integral of squares of sums over windows of the width L.
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
        freedom = _freedom(times)
        b = 1 / (freedom + 1)
        return float((variance / (1 - b + b**2 / 3)) ** 0.5), freedom


def _freedom(times: np.ndarray) -> float:
    """How well windows of these times know a variance; see `resampling/_multipliers.py`."""
    gaps = np.diff(np.unique(times))
    covered = np.minimum(gaps, _WINDOW).sum() * (1 + 1 / gaps.size)
    return float(max(covered / _WINDOW - 1, 1.0))
