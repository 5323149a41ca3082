"""What rows say of a map of the unit line, and the score of a map that did not see them.

Of quantiles and samples this is the CRPS of the mended forecast, in units of the targets: with
D_ik the distance of the quantiles around level k, half of that to either side,

    sum_k (G(u_k) - 1[U_i <= u_k])^2 D_ik + o_i,

where o_i is how far the target is beyond what all D_ik cover, which no map changes.

Of densities and counts it is the log score, less that of the forecast as it is: with the levels as
ends of cells of the unit line, -log((G(u_k) - G(u_{k-1})) / (u_k - u_{k-1})) for the cell with U_i.
Of counts and of hidden targets, of which an interval [l, h] of U is known, it is

    -log((G(h) - G(l)) / (h - l))

with G linear in each cell: nothing that another map says of the hidden part is in this score.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calibjax.recalibration._pit_map_fits import LINES, increasing

# Of cdfs in float32: 16 units in the last place.
_ROUNDING = 2.0**-19


class LineRows(NamedTuple):
    """Rows that fit a map of the unit line, or that judge one.

    Args:
        levels: where the map is fitted, ``[K]``.
        below: how much of U of each row is at most each level, from 0 to 1, ``[n, K]``.
        weights: positive, ``[n]``; their sum is how many equal ones would be as exact.
        part: the number of the part of each row that is left out in turn, ``[n]``.
        distances: D, of quantiles and samples, ``[n, K]``, else None.
        beyond: o, beside distances, ``[n]``.
        features: what a map of each forecast looks at, ``[n, F]``, of which the first two are the
            median and the logarithm of the spread; None if no map looks at them.
        seen: how much of each cell between levels U may lie in, ``[n, K + 1]``, where intervals of
            U are known; else None.
    """

    levels: np.ndarray
    below: np.ndarray
    weights: np.ndarray
    part: np.ndarray
    distances: np.ndarray | None = None
    beyond: np.ndarray | float = 0.0
    features: np.ndarray | None = None
    seen: np.ndarray | None = None

    def chosen(self, which: np.ndarray) -> "LineRows":
        """Some of the rows."""
        distances, features, seen = (
            None if x is None else x[which] for x in (self.distances, self.features, self.seen)
        )
        return self._replace(
            below=self.below[which],
            weights=self.weights[which],
            part=self.part[which],
            distances=distances,
            beyond=np.broadcast_to(self.beyond, self.weights.shape)[which],
            features=features,
            seen=seen,
        )

    def scores(self, g: np.ndarray) -> np.ndarray:
        """The score of each row by values of G at the levels, ``[K]`` or ``[n, K]``."""
        if self.distances is not None:
            return np.sum((g - self.below) ** 2 * self.distances, axis=1) + self.beyond
        if self.seen is not None:
            return -np.log(self.probabilities(g) / self.probabilities(self.levels))
        return -np.sum(cells(self.below) * np.log(cells(g) / cells(self.levels)), axis=-1)

    def probabilities(self, g: np.ndarray) -> np.ndarray:
        """G(h) - G(l) of intervals of U by values of G at the levels, ``[K]`` or ``[n, K]``."""
        assert self.seen is not None  # the caller has looked
        return np.sum(self.seen * cells(g), axis=-1)


def cells(g: np.ndarray) -> np.ndarray:
    """What is between levels, and beyond the outer ones: ``[…, K + 1]``."""
    ends = np.zeros_like(g[..., :1])
    return np.diff(np.concatenate([ends, g, ends + 1], axis=-1), axis=-1)


def at_levels(levels: np.ndarray, u: np.ndarray) -> np.ndarray:
    """U ``[n]``, of which those that differ from a level by rounding are at this level."""
    nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, u)]
    return np.where(np.abs(u - nearest) <= _ROUNDING * nearest, nearest, u)


def seen_cells(levels: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How much of each cell between levels is in intervals of U, ``[n, K + 1]``.

    Where U is known, low == high, it is 1 for the cell that U is in.
    """
    start, end = np.append(0.0, levels), np.append(levels, 1.0)
    common = np.minimum(high[:, None], end) - np.maximum(low[:, None], start)
    is_in = np.searchsorted(levels, low)[:, None] == np.arange(start.size)
    is_known = (low == high)[:, None]
    return np.where(is_known, is_in, np.maximum(common, 0.0) / (end - start))


def beyond_quantiles(quantiles: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """How far targets ``[n]`` are beyond what the distances of `distances_of` cover, ``[n]``."""
    gaps = np.diff(quantiles, axis=1)
    low, high = quantiles[:, 0] - gaps[:, 0] / 2, quantiles[:, -1] + gaps[:, -1] / 2
    return np.maximum(low - targets, 0.0) + np.maximum(targets - high, 0.0)


def distances_of(quantiles: np.ndarray) -> np.ndarray | None:
    """Half of the distances from quantiles to both neighbours, ``[n, K]``.

    Beyond the outer ones the next quantile is taken to be as far as the last.  Without any distance
    there is None.
    """
    gaps = np.maximum(np.diff(quantiles, axis=1), 0.0)
    gaps = np.concatenate([gaps[:, :1], gaps, gaps[:, -1:]], axis=1)
    found = (gaps[:, :-1] + gaps[:, 1:]) / 2
    return found if np.all(np.isfinite(found)) and found.any() else None


# Where the map is linear in normal scores, ends of intervals are read off at so many scores at
# most; the mass beyond is that of a single target.
_FARTHEST = 8.0
_MOST_STEPS, _SMALL_CHANGE = 100, 1e-5


def below_of_intervals(
    method: str, levels: np.ndarray, low: np.ndarray, high: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """What is below each level ``[n, K]`` of targets that are known by intervals of U alone.

    A map of `LINES` finds it for itself, and a smooth one for choices among several maps.
    """
    line, n = LINES[method if method in LINES else "pit_spline"], float(weights.sum())

    def fit(below: np.ndarray) -> np.ndarray:
        return increasing(line(levels, weights @ below / n, n).probabilities)

    return mass_below_given(fit, levels, low, high)


def mass_below_given(
    fit: Callable[[np.ndarray], np.ndarray], levels: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """P(U <= u | low < U <= high) under the map that is fitted to just these shares, ``[n, K]``.

    From U that is uniform in its interval, what is below each level and the map are found in turn:
    this is the EM algorithm, and for the map that is free at each level the self-consistent
    estimate of Turnbull.

    Args:
        fit: G at the levels ``[K]``, increasing, from what is below ``[n, K]``.
        levels: of the unit line, ``[K]``.
        low: ends of the intervals, ``[n]``; equal to `high` where U is known.
        high: ``[n]``.
    """
    from scipy.special import ndtr, ndtri

    scores = ndtri(levels)
    ends = np.clip(ndtri(np.stack([low, high])), -_FARTHEST, _FARTHEST)
    is_known = (low == high)[:, None]
    g, below = levels, np.zeros((len(low), len(levels)))
    for _ in range(_MOST_STEPS):
        at_low, at_high = ndtr(_through(scores, ndtri(g), ends))
        at_low, at_high = np.where(low > 0, at_low, 0.0), np.where(high < 1, at_high, 1.0)
        mass = np.maximum(at_high - at_low, 1e-300)[:, None]
        inside = np.clip((g[None] - at_low[:, None]) / mass, 0.0, 1.0)
        below = np.where(is_known, low[:, None] <= levels, inside)
        below = np.where(levels >= high[:, None], 1.0, np.where(levels < low[:, None], 0.0, below))
        new = fit(below)
        change, g = np.abs(new - g).max(), new
        if change < _SMALL_CHANGE:
            break
    return below


def _through(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Lines through increasing points ``[K]``, that go on beyond the outer ones."""
    piece = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    return y[piece] + (at - x[piece]) / (x[piece + 1] - x[piece]) * (y[piece + 1] - y[piece])
