"""Fits of monotone maps G of PIT values, and scores of held-out rows.

At each level u_k the share s_k of rows has U <= u_k.  The loss of a map is the log loss of G(u_k)
as the probability of this event,

    mean_k -(s_k log G(u_k) + (1 - s_k) log(1 - G(u_k))),

which needs no exact targets, and is the same for densities, counts, quantiles and samples.  The
maps have few numbers, fitted in NumPy and SciPy.

**Scores.**  Held-out rows have the score of the predictions that users get.  For quantiles and
samples it is the mean pinball loss and the CRPS of recalibrated values, after the bound, and
rounded if they are counts.  For a density f it is the log score minus that of the original
forecast,

    -log g(F(y)) = -log s'(z) - (z^2 - s(z)^2) / 2,  s = Phi^{-1} o G o Phi,  z = Phi^{-1}(F(y)).

For counts and censored targets, where U is in an interval [l, h], it is

    -log((G(h) - G(l)) / (h - l))

with G linear in each cell between levels: the score does not use the distribution of U within its
interval under another map.

**Tails.**  Maps of densities have one more level on each side.  Beyond the outer levels of the fit
s is a line.  Its slope c has the best log score of the n targets there, at distances d_i:
c^2 sum d_i^2 + c (s_0 sum d_i + n_0 / c_0) = n + n_0, with the value s_0 and slope c_0 of s at the
outer level; c_0 has the weight of n_0 targets.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from calibjax._numbers.arithmetic import place_among
from calibjax._numbers.validity import ArrayT
from calibjax.recalibration._penalised_regression import natural_spline, smooth_basis, spline_fits

#: Levels of maps of densities and samples: dense in the tails, where errors show.
LEVELS = (0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99)
#: Levels of maps of densities, whose tails have their own slope.
WITH_TAILS = (3.2e-5, *LEVELS, 1 - 3.2e-5)
# Minimum slope of the outer pieces of a map, in normal scores.
_LEAST_STRETCH = 0.2
# Number of targets that the slope at the outer level counts as, in the fit of a tail.
_PRIOR = 2.0
# Minimum slope and step of maps, so that they increase inside (0, 1) also in float32.
LEAST_SLOPE, _LEAST = 0.05, 1e-5
_MOST_KNOTS = 8


class FittedPITMap(NamedTuple):
    """G at the levels ``[K]``, whether the search found a minimum, and a description."""

    probabilities: np.ndarray
    converged: bool
    description: str


def fit_shift_scale(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """Fits G(Phi(z)) = Phi(a + b z), with b > 0: normal predictions shifted and scaled."""
    from scipy.special import log_ndtr, ndtr, ndtri

    z = ndtri(levels)

    def loss(x: np.ndarray) -> float:
        moved = x[0] + x[1] * z
        return -float(np.mean(shares * log_ndtr(moved) + (1 - shares) * log_ndtr(-moved)))

    x, converged = least(loss, np.array([0.0, 1.0]), [(None, None), (LEAST_SLOPE, None)])
    words = f"shift {-x[0] / x[1]:+.2g} and scale {1 / x[1]:.3g}, in normal scores"
    return FittedPITMap(ndtr(x[0] + x[1] * z), converged, words)


def fit_pit_beta(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """Fits logit G(u) = c + a log u - b log(1 - u) with a, b > 0."""
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
    """Fits G as the shares, as if one more row had a uniform U."""
    return FittedPITMap((n * shares + levels) / (n + 1), True, f"{len(levels)} levels")


def fit_pit_spline(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedPITMap:
    """Fits logit G(u) as a natural cubic spline of logit u, as if one more row had a uniform U.

    The penalty on the second derivative has the strength with the least leave-one-out loss.  With
    gradients g_i of the rows and the Hessian matrix H of mean loss and penalty, leaving out row i
    changes the fit by H^{-1} g_i / n, and the mean leave-one-out loss is nearly

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
    """The minimum of a loss, and whether the search converged; a loss may return its gradient."""
    from scipy.optimize import minimize

    options = {"ftol": 1e-13}
    found = minimize(loss, start, jac=has_slope, method="L-BFGS-B", bounds=bounds, options=options)
    # If shares are 0 or 1 at all levels, the numbers diverge.
    return found.x, bool(found.success and np.all(np.abs(found.x) < 50))


def increasing(probabilities: ArrayT) -> ArrayT:
    """The same numbers ``[…, K]`` inside (0, 1), with steps that float32 can represent."""
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


LOG_SCORE = "log loss, change"


class Scored(Protocol):
    """Rows that score recalibrated values."""

    def chosen(self, rows: np.ndarray) -> Self: ...
    def scores_of(self, values: np.ndarray) -> np.ndarray: ...


class KnownValues(NamedTuple):
    """Quantiles or samples: normal scores of levels ``[L]`` or ``[n, L]``, values, and rows."""

    z: np.ndarray
    values: np.ndarray
    rows: Scored

    def chosen(self, rows: np.ndarray) -> Self:
        z = self.z if self.z.ndim == 1 else self.z[rows]
        return type(self)(z, self.values[rows], self.rows.chosen(rows))

    def scores(self, levels: np.ndarray, g: np.ndarray) -> np.ndarray:
        """The scores of the values after a map, ``[n]``."""
        from scipy.special import ndtri

        knots = ndtri(levels)
        scores = with_tails(np, ndtri(g), knots)
        return self.rows.scores_of(_lines(self.z, self.values, _lines(scores, knots, self.z)))


class PITMapRows(NamedTuple):
    """Rows that fit or score a map of the unit interval.

    Args:
        levels: levels of the fit, ``[K]``.
        below: P(U <= level) of each row, ``[n, K]``.
        weights: positive weights, ``[n]``; their sum is the effective sample size.
        part: the part that is held out with each row, ``[n]``.
        features: features of forecasts for a conditional map, ``[n, F]``, first the median and the
            logarithm of the spread; else None.
        seen: the share of each cell between levels that the interval of U covers, ``[n, K + 1]``,
            for counts and censored targets; else None.
        z: the normal scores of targets of densities, ``[n]``; else None.
        known: quantiles or samples with known targets; else None.
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
        """The score of each row after a map with values G at the levels, ``[K]`` or ``[n, K]``."""
        if self.known is not None:
            return self.known.scores(self.levels, g)
        if self.z is not None:
            return log_scores(self.levels, g, self.z)
        return -np.log(self.probabilities(g) / self.probabilities(self.levels))

    def probabilities(self, g: np.ndarray) -> np.ndarray:
        """G(h) - G(l) of intervals of U, from values of G at the levels, ``[K]`` or ``[n, K]``."""
        assert self.seen is not None  # the caller has looked
        return np.sum(self.seen * cells(g), axis=-1)


def cells(g: np.ndarray) -> np.ndarray:
    """Differences of G between levels and beyond the outer ones, ``[…, K + 1]``."""
    return np.diff(g, axis=-1, prepend=0.0, append=1.0)


def at_levels(levels: np.ndarray, u: np.ndarray) -> np.ndarray:
    """U ``[n]``, moved to a level if it differs from this level by rounding only."""
    nearest = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, u)]
    return np.where(np.abs(u - nearest) <= _ROUNDING_OF_CDF * nearest, nearest, u)


def seen_cells(levels: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The share of each cell between levels that the interval of U covers, ``[n, K + 1]``.

    If U is known, low == high, it is 1 for the cell of U and else 0.
    """
    start, end = np.append(0.0, levels), np.append(levels, 1.0)
    common = np.minimum(high[:, None], end) - np.maximum(low[:, None], start)
    is_in = np.searchsorted(levels, low)[:, None] == np.arange(start.size)
    return np.where((low == high)[:, None], is_in, np.maximum(common, 0.0) / (end - start))


# Maximum normal score at which ends of intervals are evaluated, and limits of the EM algorithm.
_FARTHEST = 8.0
_MOST_STEPS, _SMALL_CHANGE = 100, 1e-5


def below_of_intervals(
    method: str, levels: np.ndarray, low: np.ndarray, high: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """P(U <= u | low < U <= high) under the map that is fitted to these probabilities, ``[n, K]``.

    EM finds both in turn, from U uniform in its interval.  For "pit_isotonic" this is the
    self-consistent estimate of Turnbull.

    Args:
        method: a map of `PIT_MAP_FITS`; for all other methods "pit_spline" is used.
        levels: levels of the unit interval, ``[K]``.
        low: lower ends of the intervals, ``[n]``; equal to `high` where U is known.
        high: upper ends, ``[n]``.
        weights: weights of rows, ``[n]``.
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
    """Linear interpolation of points x ``[K]``, y ``[…, K]``, and extrapolation beyond them."""
    search: Any = np.searchsorted if xp is np else place_among
    piece = xp.clip(search(x, at, "right") - 1, 0, len(x) - 2)
    share = (at - x[piece]) / (x[piece + 1] - x[piece])
    return y[..., piece] + share * (y[..., piece + 1] - y[..., piece])


def _lines(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """`line_through` for arguments that may differ between rows, ``[n, …]``."""
    if x.ndim == at.ndim == 1:
        return line_through(np, x, y, at)
    if x.ndim == 1:
        piece = np.searchsorted(x, at, side="right") - 1
    else:
        piece = np.sum(x[:, None] <= at[..., None], axis=2) - 1
    piece = np.clip(piece, 0, x.shape[-1] - 2)
    x0, x1, y0, y1 = (
        part[piece + k] if part.ndim == 1 else np.take_along_axis(part, piece + k, axis=1)
        for part in (x, y)
        for k in (0, 1)
    )
    return y0 + (at - x0) / (x1 - x0) * (y1 - y0)


def log_scores(levels: np.ndarray, g: np.ndarray, z: np.ndarray) -> np.ndarray:
    """-log g(Phi(z)) of a map with values ``[K]`` or ``[n, K]`` at the levels, ``[n]``."""
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
    """Normal scores of a map ``[…, K]`` with a minimum slope of the outer pieces.

    Few targets between the outer levels would make them nearly flat, and the new tails huge.
    """
    least = _LEAST_STRETCH * xp.diff(scores)
    first = xp.minimum(moved[..., :1], moved[..., 1:2] - least[0])
    last = xp.maximum(moved[..., -1:], moved[..., -2:-1] + least[-1])
    return xp.concatenate([first, moved[..., 1:-1], last], axis=-1)


def with_fitted_tails(g: np.ndarray, rows: PITMapRows) -> np.ndarray:
    """The map at all levels of `WITH_TAILS`, from its values at the inner ones ``[K]``."""
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
