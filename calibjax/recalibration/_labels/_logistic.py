"""Logistic regression with few numbers, by Newton's method, in NumPy and float64."""

from typing import NamedTuple

import numpy as np

from calibjax.recalibration._newton import newton

# A part of the curvature, so that numbers which the data do not determine stay where they are.
_RIDGE = 1e-10


class Regression(NamedTuple):
    """Fitted numbers, if the search found a minimum, and the loss of each row left out in turn."""

    numbers: np.ndarray
    converged: bool
    left_out: np.ndarray


def logistic_regression(
    features: np.ndarray,
    happened: np.ndarray,
    weights: np.ndarray,
    penalty: np.ndarray | None = None,
    start: np.ndarray | None = None,
    offset: np.ndarray | float = 0.0,
    part: np.ndarray | None = None,
) -> Regression:
    """The numbers t ``[k]`` of the least mean of log(1 + exp(-+(o + x't))) + sum_j penalty_j t_j^2.

    Losses of rows left out are those of one step of Newton's method without the row, which costs no
    further fit (Rad and Maleki 2020); with `part`, the number of the part of each row ``[n]``,
    without all rows of its part.
    """
    share = weights / weights.sum()
    k = features.shape[1]
    penalty = np.zeros(k) if penalty is None else penalty
    t = np.zeros(k) if start is None else start
    # The slope of the penalty is 2 penalty t, and its curvature 2 penalty.
    sign = np.where(happened, 1.0, -1.0)

    def loss_at(t: np.ndarray) -> float:
        return float(share @ np.logaddexp(0.0, -sign * (offset + features @ t)) + penalty @ t**2)

    def slope_and_curvature(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = _sigmoid(offset + features @ t)
        slope = features.T @ (share * (p - happened)) + 2 * penalty * t
        return slope, _curvature(features, share * p * (1 - p), penalty)

    t, converged = newton(loss_at, slope_and_curvature, t)
    p = _sigmoid(offset + features @ t)
    variances = share * p * (1 - p)
    slopes = share * (p - happened)
    if part is None:
        inverse = np.linalg.inv(_curvature(features, variances, penalty))
        leverage = np.sum((features @ inverse) * features, axis=1)
        moves = leverage * slopes / np.maximum(1 - variances * leverage, 1e-3)
    else:
        moves = np.zeros(len(p))
        for left_out in range(part.max() + 1):
            inside = part == left_out
            others = _curvature(features[~inside], variances[~inside], penalty)
            step = np.linalg.solve(others, features[inside].T @ slopes[inside])
            moves[inside] = features[inside] @ step
    without = offset + features @ t + moves
    # If all decisions are right, larger numbers are always better.
    is_minimum = converged and not bool(np.all(sign * (offset + features @ t) > 0))
    return Regression(t, is_minimum, np.logaddexp(0.0, -sign * without))


def _curvature(features: np.ndarray, variances: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    hessian = (features * variances[:, None]).T @ features + np.diag(2 * penalty)
    scale = np.einsum("nj,nj->j", features, features) / len(features)
    return hessian + _RIDGE * np.diag(np.maximum(scale, 1e-4 * scale.max()))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x)))
