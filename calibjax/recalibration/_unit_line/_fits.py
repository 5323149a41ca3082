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
from calibjax.recalibration._unit_line._spline import smooth_line

#: Where maps of densities and of samples are fitted: dense in the tails, where errors show.
LEVELS = (0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99)
# Maps stay increasing, and inside of (0, 1), in float32 too.
_LEAST_SLOPE, _LEAST = 0.05, 1e-5


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
    """logit G(u) a natural cubic spline of logit u, as if one more row had an even U."""
    fit = smooth_line(levels, (n * shares + levels) / (n + 1), n)
    # A curve that bends back at all strengths is made to rise.
    rising = np.maximum.accumulate(fit.probabilities)
    return FittedLine(rising, fit.converged, f"penalty {fit.strength:.0e}")


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
