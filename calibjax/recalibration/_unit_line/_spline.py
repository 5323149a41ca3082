"""A smooth map of the unit line: logit G(u) is a natural cubic spline of logit u."""

from typing import NamedTuple

import numpy as np

from calibjax.recalibration._labels import logistic_regression
from calibjax.recalibration._splines import natural_spline, smooth_basis

_MOST_KNOTS = 8
# From nearly a straight line to hardly any penalty.
_STRENGTHS = 10.0 ** np.arange(1, -7, -1)


class SmoothLine(NamedTuple):
    """G at the levels ``[K]``, the strength of the penalty, and if a minimum was found."""

    probabilities: np.ndarray
    strength: float
    converged: bool


def smooth_line(levels: np.ndarray, shares: np.ndarray, n: float) -> SmoothLine:
    """The curve through shares ``[K]`` with the least loss of a row that is left out.

    The least loss is over strengths of a penalty on the second derivative.  With gradients g_i of
    the rows and the Hessian matrix H of mean loss and penalty, leaving out row i changes the fit by
    H^{-1} g_i / n, so that the mean loss of rows left out is nearly

        loss + tr(H^{-1} mean_i g_i g_i') / n.

    The events U <= u_k of one row are those of an empirical cdf: at two levels their covariance is
    s_min(k, l) - s_k s_l.
    """
    x = np.log(levels) - np.log1p(-levels)
    x = (x - x.mean()) / x.std()
    # Knots at the levels, or evenly among them.
    places = np.linspace(0, len(x) - 1, min(_MOST_KNOTS, len(x)))
    basis, curvature_of = smooth_basis(np.interp(places, np.arange(len(x)), x))
    knots = basis[:, 1]
    features = natural_spline(np, x, knots, basis, curvature_of)
    ordered = np.minimum.outer(np.arange(len(x)), np.arange(len(x)))
    # A level is an event of the weight s_k, and its opposite.
    twice = np.concatenate([features, features])
    happened = np.arange(len(twice)) < len(x)
    weights = np.concatenate([shares, 1 - shares])
    best: SmoothLine | None = None
    start, least = None, np.inf
    for strength in _STRENGTHS:
        penalty = np.where(np.arange(len(knots)) < 2, 0.0, strength)
        fit = logistic_regression(twice, happened, weights, penalty, start)
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
        increases = np.all(np.diff(logits) > 0)
        if best is None or (increases and left_out < least):
            best, least = SmoothLine(p, strength, fit.converged), left_out
    assert best is not None  # there is a strength
    return best
