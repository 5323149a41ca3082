"""Fits of monotone maps G of the unit line, by thresholds.

At each level u_k the data say how often U <= u_k: a share s_k, which is a mean over rows.  A map
has the loss of a predicted probability G(u_k) of this event,

    mean_k -(s_k log G(u_k) + (1 - s_k) log(1 - G(u_k))),

so that targets need not be known exactly, and densities, counts, quantiles and samples are one.
The fits are of few numbers, in NumPy and SciPy.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calibjax._numbers import ArrayT
from calibjax.recalibration._penalised_regression import (
    STRENGTHS,
    logistic_regression,
    natural_spline,
    smooth_basis,
)

#: Where maps of densities and of samples are fitted: dense in the tails, where errors show.
LEVELS = (0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99)
# Maps stay increasing, and inside of (0, 1), in float32 too.
_LEAST_SLOPE, _LEAST = 0.05, 1e-5
_MOST_KNOTS = 8


class FittedLine(NamedTuple):
    """G at the levels ``[K]``, whether the search for it found a minimum, and it in words."""

    probabilities: np.ndarray
    converged: bool
    words: str


def fit_nothing(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedLine:
    """G(u) = u."""
    return FittedLine(levels, True, "")


def fit_shift_scale(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedLine:
    """G(Phi(z)) = Phi(a + b z), with b > 0: normal predictions shifted and scaled."""
    from scipy.special import log_ndtr, ndtr, ndtri

    z = ndtri(levels)

    def loss(x: np.ndarray) -> float:
        moved = x[0] + x[1] * z
        return -float(np.mean(shares * log_ndtr(moved) + (1 - shares) * log_ndtr(-moved)))

    x, converged = _least(loss, np.array([0.0, 1.0]), [(None, None), (_LEAST_SLOPE, None)])
    words = f"shift {-x[0] / x[1]:+.2g} and scale {1 / x[1]:.3g}, in normal scores"
    return FittedLine(ndtr(x[0] + x[1] * z), converged, words)


def fit_pit_beta(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedLine:
    """logit G(u) = c + a log u - b log(1 - u) with a, b > 0."""
    from scipy.special import expit, log_expit

    features = np.stack([np.ones_like(levels), np.log(levels), -np.log1p(-levels)], axis=1)

    def loss(x: np.ndarray) -> float:
        logits = features @ x
        return -float(np.mean(shares * log_expit(logits) + (1 - shares) * log_expit(-logits)))

    bounds = [(None, None), (_LEAST_SLOPE, None), (_LEAST_SLOPE, None)]
    x, converged = _least(loss, np.array([0.0, 1.0, 1.0]), bounds)
    words = f"logit G(u) = {x[0]:.2g} {x[1]:+.2g} log u - {x[2]:.2g} log(1 - u)"
    return FittedLine(expit(features @ x), converged, words)


def fit_pit_isotonic(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedLine:
    """The shares themselves, which increase, as if one more row had an even U."""
    return FittedLine((n * shares + levels) / (n + 1), True, f"{len(levels)} levels")


def fit_pit_spline(levels: np.ndarray, shares: np.ndarray, n: float) -> FittedLine:
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
    best: FittedLine | None = None
    start, least = None, np.inf
    for strength in STRENGTHS:
        penalty = np.where(np.arange(len(knots)) < 2, 0.0, strength)
        fit = logistic_regression(features, shares, np.ones(len(x)), penalty, start)
        start = fit.numbers
        logits = features @ start
        p = 1 / (1 + np.exp(-logits))
        loss = np.mean(np.logaddexp(0.0, logits) - shares * logits)
        gap = p - shares
        covariance = shares[ordered] - np.outer(shares, shares) + np.outer(gap, gap)
        of_rows = features.T @ covariance @ features / len(x) ** 2
        curvature = (features * (p * (1 - p))[:, None]).T @ features / len(x)
        curvature += np.diag(2 * penalty + 1e-10)
        left_out = loss + np.trace(np.linalg.solve(curvature, of_rows)) / n
        # A curve that bends back is no map; a straight line never does.
        if best is None or (np.all(np.diff(logits) > 0) and left_out < least):
            best, least = FittedLine(p, fit.converged, f"penalty {strength:.0e}"), left_out
    assert best is not None  # there is a strength
    # A curve that bends back at all strengths is made to rise.
    return best._replace(probabilities=np.maximum.accumulate(best.probabilities))


def _least(
    loss: Callable[[np.ndarray], float], start: np.ndarray, bounds: list
) -> tuple[np.ndarray, bool]:
    from scipy.optimize import minimize

    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-13})
    # Where a share is 0 or 1 at all levels, ever larger numbers are better.
    return found.x, bool(found.success and np.all(np.abs(found.x) < 50))


def increasing(probabilities: ArrayT) -> ArrayT:
    """The same numbers ``[…, K]`` inside of (0, 1), so far apart that float32 tells them apart."""
    k = probabilities.shape[-1]
    return (1 - (k + 1) * _LEAST) * probabilities + _LEAST * np.arange(1, k + 1)


LINES: dict[str, Callable[[np.ndarray, np.ndarray, float], FittedLine]] = {
    "shift_scale": fit_shift_scale,
    "pit_beta": fit_pit_beta,
    "pit_spline": fit_pit_spline,
    "pit_isotonic": fit_pit_isotonic,
}
