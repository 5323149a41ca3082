"""How much of U is below each level, if only an interval of the unit line is known of it."""

from collections.abc import Callable

import numpy as np

from calibjax.recalibration._unit_line._fits import LINES, increasing

# Where the map is linear in normal scores, ends of intervals are read off at so many scores at
# most; the mass beyond is that of a single target.
_FARTHEST = 8.0
_MOST_STEPS, _SMALL_CHANGE = 100, 1e-5


def hidden_below(
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
