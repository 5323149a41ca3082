"""Fits of monotone maps G of PIT values, and scores of rows that did not fit them.

At each level u_k the data say how often U <= u_k: a share s_k, which is a mean over rows.  A map
has the loss of a predicted probability G(u_k) of this event,

    mean_k -(s_k log G(u_k) + (1 - s_k) log(1 - G(u_k))),

so that targets need not be known exactly, and densities, counts, quantiles and samples are one.
The fits are of few numbers, in NumPy and SciPy.

**Scores.**  Held-out rows have the score of what users get.  Quantiles and samples have the mean
pinball loss and the CRPS of their recalibrated values, with the bound that they keep, rounded if
they are counts.  A density f has the log score less that of the forecast as it is,

    -log g(F(y)) = -log s'(z) - (z^2 - s(z)^2) / 2,  s = Phi^{-1} o G o Phi,  z = Phi^{-1}(F(y)).

Counts and censored targets, of which an interval [l, h] of U is known, have

    -log((G(h) - G(l)) / (h - l))

with G linear in each cell between levels: nothing that another map says of the hidden part is in
this score.

**Tails.**  Maps of densities have one more level on each side.  Beyond the outer levels of the fit
s is a line with the slope c of the best log score of the targets there, at distances d_i:
c^2 sum d_i^2 + c (s_0 sum d_i + n_0 / c_0) = n + n_0, with s_0 and the slope c_0 at the outer
level, which counts as n_0 targets.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from calibjax._numbers.validity import ArrayT
from calibjax.recalibration._penalised_regression import natural_spline, smooth_basis, spline_fits

#: Where maps of densities and of samples are fitted: dense in the tails, where errors show.
LEVELS = (0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99)
#: Those of densities, whose tails have a slope of their own.
WITH_TAILS = (3.2e-5, *LEVELS, 1 - 3.2e-5)
# The least slope of the outer pieces of a map, in normal scores.
_LEAST_STRETCH = 0.2
# What a slope of a tail is drawn to counts as so many targets.
_PRIOR = 2.0
# Maps stay increasing, and inside of (0, 1), in float32 too.
LEAST_SLOPE, _LEAST = 0.05, 1e-5
_MOST_KNOTS = 8


class FittedPITMap(NamedTuple):
    """G at the levels ``[K]``, whether the search for it found a minimum, and it as text."""

    probabilities: np.ndarray
    converged: bool
    description: str


def fit_shift_scale(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """G(Phi(z)) = Phi(a + b z), with b > 0: normal predictions shifted and scaled."""
    from scipy.special import log_ndtr, ndtr, ndtri

    z = ndtri(levels)

    def loss(x: np.ndarray) -> float:
        moved = x[0] + x[1] * z
        return -float(np.mean(shares * log_ndtr(moved) + (1 - shares) * log_ndtr(-moved)))

    x, converged = least(loss, np.array([0.0, 1.0]), [(None, None), (LEAST_SLOPE, None)])
    words = f"shift {-x[0] / x[1]:+.2g} and scale {1 / x[1]:.3g}, in normal scores"
    return FittedPITMap(ndtr(x[0] + x[1] * z), converged, words)


def fit_pit_beta(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """logit G(u) = c + a log u - b log(1 - u) with a, b > 0."""
    from scipy.special import expit, log_expit

    features = np.stack([np.ones_like(levels), np.log(levels), -np.log1p(-levels)], axis=1)

    def loss(x: np.ndarray) -> float:
        logits = features @ x
        return -float(np.mean(shares * log_expit(logits) + (1 - shares) * log_expit(-logits)))

    bounds = [(None, None), (LEAST_SLOPE, None), (LEAST_SLOPE, None)]
    x, converged = least(loss, np.array([0.0, 1.0, 1.0]), bounds)
    words = f"logit G(u) = {x[0]:.2g} {x[1]:+.2g} log u - {x[2]:.2g} log(1 - u)"
    return FittedPITMap(expit(features @ x), converged, words)


def fit_pit_isotonic(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """The shares themselves, which increase, as if one more row had an even U."""
    return FittedPITMap((n * shares + levels) / (n + 1), True, f"{len(levels)} levels")


def fit_pit_spline(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """logit G(u) a natural cubic spline of logit u, as if one more row had an even U.

    The strength of a penalty on the second derivative is that of the least loss of a row that is
    left out.  With gradients g_i of the rows and the Hessian matrix H of mean loss and penalty,
    leaving out row i changes the fit by H^{-1} g_i / n, so that the mean loss of rows left out is
    nearly

        loss + tr(H^{-1} mean_i g_i g_i') / n.

    The events U <= u_k of one row are those of an empirical cdf: at two levels their covariance is
    s_min(k, l) - s_k s_l.
    """
    shares = (n * shares + levels) / (n + 1)
    x = np.log(levels) - np.log1p(-levels)
    x = (x - x.mean()) / x.std()
    # Knots at the levels, or evenly among them.
    ranks = np.linspace(0, len(x) - 1, min(_MOST_KNOTS, len(x)))
    basis, curvature_of = smooth_basis(np.interp(ranks, np.arange(len(x)), x))
    knots = basis[:, 1]
    features = natural_spline(np, x, knots, basis, curvature_of)
    ordered = np.minimum.outer(np.arange(len(x)), np.arange(len(x)))
    best: FittedPITMap | None = None
    least = np.inf
    for strength, fit in spline_fits(features, shares, np.ones(len(x))):
        penalty = np.where(np.arange(len(knots)) < 2, 0.0, strength)
        logits = features @ fit.numbers
        p = 1 / (1 + np.exp(-logits))
        loss = np.mean(np.logaddexp(0.0, logits) - shares * logits)
        gap = p - shares
        covariance = shares[ordered] - np.outer(shares, shares) + np.outer(gap, gap)
        of_rows = features.T @ covariance @ features / len(x) ** 2
        curvature = (features * (p * (1 - p))[:, None]).T @ features / len(x)
        curvature += np.diag(2 * penalty + 1e-10)
        left_out = loss + np.trace(np.linalg.solve(curvature, of_rows)) / n
        # A curve that bends back is not a map; a straight line never does.
        if best is None or (np.all(np.diff(logits) > 0) and left_out < least):
            best, least = FittedPITMap(p, fit.converged, f"penalty {strength:.0e}"), left_out
    assert best is not None  # there is a strength
    # A curve that bends back at all strengths is made to rise.
    return best._replace(probabilities=np.maximum.accumulate(best.probabilities))


def least(
    loss: Callable[[np.ndarray], Any], start: np.ndarray, bounds: list, has_slope: bool = False
) -> tuple[np.ndarray, bool]:
    """Where a loss is least, and whether the search found it; a loss may come with its slope."""
    from scipy.optimize import minimize

    options = {"ftol": 1e-13}
    found = minimize(loss, start, jac=has_slope, method="L-BFGS-B", bounds=bounds, options=options)
    # Where a share is 0 or 1 at all levels, ever larger numbers are better.
    return found.x, bool(found.success and np.all(np.abs(found.x) < 50))


def increasing(probabilities: ArrayT) -> ArrayT:
    """The same numbers ``[…, K]`` inside of (0, 1), so far apart that float32 tells them apart."""
    k = probabilities.shape[-1]
    return (1 - (k + 1) * _LEAST) * probabilities + _LEAST * np.arange(1, k + 1)


PIT_MAP_FITS: dict[str, Callable[[np.ndarray, np.ndarray, float], FittedPITMap]] = {
    "shift_scale": fit_shift_scale,
    "pit_beta": fit_pit_beta,
    "pit_spline": fit_pit_spline,
    "pit_isotonic": fit_pit_isotonic,
}


# The relative rounding of cdfs in float32: 16 units in the last place.
_ROUNDING_OF_CDF = 16 * float(np.finfo(np.float32).eps)


LOG_SCORE = "log score minus that of the original forecast"


class Judge(Protocol):
    """Rows whose recalibrated values have a score."""

    def chosen(self, rows: np.ndarray) -> Self: ...
    def scores_of(self, values: np.ndarray) -> np.ndarray: ...
    def name_of_score(self) -> str: ...


class KnownValues(NamedTuple):
    """Quantiles or samples: normal scores of levels ``[L]`` or ``[n, L]``, values, and a judge."""

    z: np.ndarray
    values: np.ndarray
    judge: Judge

    def chosen(self, rows: np.ndarray) -> Self:
        z = self.z if self.z.ndim == 1 else self.z[rows]
        return type(self)(z, self.values[rows], self.judge.chosen(rows))

    def scores(self, levels: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The scores of the values after a map, ``[n]``."""
        from scipy.special import ndtri

        knots = ndtri(levels)
        scores = with_tails(np, ndtri(g), knots)
        return self.judge.scores_of(_lines(self.z, self.values, _lines(scores, knots, self.z)))


class PITMapRows(NamedTuple):
    """Rows that fit a map of the unit interval, or that judge one.

    Args:
        levels: where the map is fitted, ``[K]``.
        below: how much of U of each row is at most each level, from 0 to 1, ``[n, K]``.
        weights: positive, ``[n]``; their sum is how many equal ones would be as exact.
        part: the number of the part of each row that is left out in turn, ``[n]``.
        features: what a map of each forecast looks at, ``[n, F]``, of which the first two are the
            median and the logarithm of the spread; None if no map looks at them.
        seen: how much of each cell between levels U may lie in, ``[n, K + 1]``, where intervals of
            U are known; else None.
        z: the normal scores of targets of densities, ``[n]``, else None.
        known: quantiles or samples whose targets are known, else None.
    """

    levels: np.ndarray
    below: np.ndarray
    weights: np.ndarray
    part: np.ndarray
    features: np.ndarray | None = None
    seen: np.ndarray | None = None
    z: np.ndarray | None = None
    known: KnownValues | None = None

    def chosen(self, which: np.ndarray) -> "PITMapRows":
        """Some of the rows."""
        of_rows: dict[str, Any] = {}
        for name, x in zip(self._fields[1:-1], self[1:-1], strict=True):
            of_rows[name] = None if x is None else x[which]
        known = None if self.known is None else self.known.chosen(which)
        return self._replace(**of_rows, known=known)

    def scores(self, g: np.ndarray) -> np.ndarray:
        """The score of each row by values of G at the levels, ``[K]`` or ``[n, K]``."""
        if self.known is not None:
            return self.known.scores(self.levels, g)
        if self.z is not None:
            return log_scores(self.levels, g, self.z)
        return -np.log(self.probabilities(g) / self.probabilities(self.levels))

    def name_of_score(self) -> str:
        """What `scores` are, in words."""
        return LOG_SCORE if self.known is None else self.known.judge.name_of_score()

    def probabilities(self, g: np.ndarray) -> np.ndarray:
        """G(h) - G(l) of intervals of U by values of G at the levels, ``[K]`` or ``[n, K]``."""
        assert self.seen is not None  # the caller has looked
        return np.sum(self.seen * cells(g), axis=-1)


def cells(g: np.ndarray) -> np.ndarray:
    """What is between levels, and beyond the outer ones: ``[…, K + 1]``."""
    return np.diff(g, axis=-1, prepend=0.0, append=1.0)


def at_levels(levels: np.ndarray, u: np.ndarray) -> np.ndarray:
    """U ``[n]``, of which those that differ from a level by rounding are at this level."""
    nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, u)]
    return np.where(np.abs(u - nearest) <= _ROUNDING_OF_CDF * nearest, nearest, u)


def seen_cells(levels: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How much of each cell between levels is in intervals of U, ``[n, K + 1]``.

    Where U is known, low == high, it is 1 for the cell that U is in.
    """
    start, end = np.append(0.0, levels), np.append(levels, 1.0)
    common = np.minimum(high[:, None], end) - np.maximum(low[:, None], start)
    is_in = np.searchsorted(levels, low)[:, None] == np.arange(start.size)
    is_known = (low == high)[:, None]
    return np.where(is_known, is_in, np.maximum(common, 0.0) / (end - start))


# Where the map is linear in normal scores, ends of intervals are read off at so many scores at
# most; the mass beyond is that of a single target.
_FARTHEST = 8.0
_MOST_STEPS, _SMALL_CHANGE = 100, 1e-5


def below_of_intervals(
    method: str, levels: np.ndarray, low: np.ndarray, high: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """P(U <= u | low < U <= high) under the map that is fitted to just these shares, ``[n, K]``.

    From U that is uniform in its interval, what is below each level and the map are found in turn:
    this is the EM algorithm, and for the map that is free at each level the self-consistent
    estimate of Turnbull.

    Args:
        method: a map of `PIT_MAP_FITS` finds it for itself, and a smooth one for all choices among
            several maps.
        levels: of the unit interval, ``[K]``.
        low: ends of the intervals, ``[n]``; equal to `high` where U is known.
        high: ``[n]``.
        weights: how much each row counts, ``[n]``.
    """
    from scipy.special import ndtr, ndtri

    line, n = PIT_MAP_FITS[method if method in PIT_MAP_FITS else "pit_spline"], float(weights.sum())
    scores = ndtri(levels)
    ends = np.clip(ndtri(np.stack([low, high])), -_FARTHEST, _FARTHEST)
    is_known = (low == high)[:, None]
    g, below = levels, np.zeros((len(low), len(levels)))
    for _ in range(_MOST_STEPS):
        at_low, at_high = ndtr(line_through(np, scores, ndtri(g), ends))
        at_low, at_high = np.where(low > 0, at_low, 0.0), np.where(high < 1, at_high, 1.0)
        mass = np.maximum(at_high - at_low, 1e-300)[:, None]
        inside = np.clip((g[None] - at_low[:, None]) / mass, 0.0, 1.0)
        below = np.where(is_known, low[:, None] <= levels, inside)
        below = np.where(levels >= high[:, None], 1.0, np.where(levels < low[:, None], 0.0, below))
        new = increasing(line(levels, weights @ below / n, n).probabilities)
        change, g = np.abs(new - g).max(), new
        if change < _SMALL_CHANGE:
            break
    return below


def line_through(xp: ModuleType, x: ArrayT, y: ArrayT, at: ArrayT) -> ArrayT:
    """Lines through points, x ``[K]`` and y ``[…, K]``, that go on beyond the outer ones."""
    piece = xp.clip(xp.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    share = (at - x[piece]) / (x[piece + 1] - x[piece])
    return y[..., piece] + share * (y[..., piece + 1] - y[..., piece])


def _lines(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """`line_through`, where each argument may be of rows ``[n, …]``."""
    if x.ndim == at.ndim == 1:
        return line_through(np, x, y, at)
    n = max(len(part) for part in (x, y, at) if part.ndim == 2)
    x, y, at = (np.broadcast_to(part, (n, part.shape[-1])) for part in (x, y, at))
    piece = np.sum(x[:, None, :] <= at[:, :, None], axis=2) - 1
    piece = np.clip(piece, 0, x.shape[1] - 2)
    x0, x1, y0, y1 = (
        np.take_along_axis(part, piece + k, axis=1) for part in (x, y) for k in (0, 1)
    )
    return y0 + (at - x0) / (x1 - x0) * (y1 - y0)


def log_scores(levels: np.ndarray, g: np.ndarray, z: np.ndarray) -> np.ndarray:
    """-log g(Phi(z)) of a map by its values at levels, ``[K]`` or ``[n, K]``, ``[n]``."""
    from scipy.special import ndtri

    knots = ndtri(levels)
    scores = with_tails(np, ndtri(g), knots)
    piece = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, len(knots) - 2)
    rows = () if scores.ndim == 1 else (np.arange(len(z)),)
    low, high = scores[(*rows, piece)], scores[(*rows, piece + 1)]
    slope = (high - low) / (knots[piece + 1] - knots[piece])
    moved = low + slope * (z - knots[piece])
    return -(np.log(slope) + (z**2 - moved**2) / 2)


def with_tails(xp: ModuleType, moved: ArrayT, scores: ArrayT) -> ArrayT:
    """Normal scores of a map ``[…, K]`` whose outer pieces stretch tails at most fivefold.

    Where hardly a target was between the outer levels, the line through them goes on for ever.
    """
    least = _LEAST_STRETCH * xp.diff(scores)
    first = xp.minimum(moved[..., :1], moved[..., 1:2] - least[0])
    last = xp.maximum(moved[..., -1:], moved[..., -2:-1] + least[-1])
    return xp.concatenate([first, moved[..., 1:-1], last], axis=-1)


def with_fitted_tails(g: np.ndarray, rows: PITMapRows) -> np.ndarray:
    """A map with the outer levels of `WITH_TAILS`, from its values at the inner ones ``[K]``."""
    from scipy.special import ndtr, ndtri

    assert rows.z is not None  # the caller has looked
    knots = ndtri(rows.levels)
    inner = with_tails(np, ndtri(increasing(g)), knots[1:-1])
    ends = []
    for sign, (end, next_to) in ((-1, (0, 1)), (1, (-1, -2))):
        known, near = knots[1:-1][end], knots[1:-1][next_to]
        start = (inner[end] - inner[next_to]) / (known - near)
        beyond = np.maximum(sign * (rows.z - known), 0.0)
        count = rows.weights @ (beyond > 0) + _PRIOR
        of_lines = sign * inner[end] * (rows.weights @ beyond) + _PRIOR / start
        squares = rows.weights @ beyond**2
        root = np.sqrt(of_lines**2 + 4 * squares * count)
        # The root of the quadratic equation, without a difference of large numbers.
        slope = 2 * count / (of_lines + root)
        slope = max(slope, _LEAST_STRETCH)
        ends.append(ndtr(inner[end] + slope * (knots[end] - known)))
    low, high = np.clip(ends, _LEAST / 50, 1 - _LEAST / 50)
    return np.concatenate([[low], ndtr(inner), [high]])
