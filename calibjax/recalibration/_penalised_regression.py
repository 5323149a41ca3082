"""Penalised logistic regression by Newton's method, and natural cubic splines as its features.

Fits run in NumPy and float64; only splines of a map also run in JAX.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import numpy as np

from calibjax._numbers.validity import ArrayT

# Penalties of a spline, from nearly a straight line to hardly any penalty.
_STRENGTHS = 10.0 ** np.arange(1, -7, -1)
_MOST_STEPS = 60
# Decrease of the function by a step below which the search has converged.
_DECREMENT = 1e-12
# Ridge as a share of the curvature, so that undetermined numbers stay unchanged.
_RIDGE = 1e-10


class Regression(NamedTuple):
    """Fitted numbers, whether the search converged, and leave-one-out losses of rows."""

    numbers: np.ndarray
    converged: bool
    left_out: np.ndarray


class Slopes(NamedTuple):
    """Features b_i x_ik that differ between the K events of a row: ``[n, B]`` and ``[n, K]``."""

    features: np.ndarray
    x: np.ndarray


def logistic_regression(
    features: np.ndarray,
    happened: np.ndarray,
    weights: np.ndarray,
    penalty: np.ndarray | None = None,
    start: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    part: np.ndarray | None = None,
    slopes: Slopes | None = None,
    counts: np.ndarray | float = 1.0,
) -> Regression:
    """Minimises the mean log loss plus sum_j penalty_j t_j^2 over t ``[A + B]``.

    The events k of row i have the logits o_ik + a_i't + x_ik b_i't'.  Leave-one-out losses are
    those after one step of Newton's method without the row, which needs no other fit (Rad and
    Maleki 2020); with `part`, without all rows of its part.

    Args:
        features, weights: a, ``[n, A]``, and weights of rows, ``[n]``.
        happened: the event of each row, ``[n]``, or K events, whose mean loss counts, ``[n, K]``;
            shares from 0 to 1.
        penalty: strengths ``[A + B]``; None for 0.
        start: start of the search, ``[A + B]``; None for 0.
        offset: o, of the shape of `happened`.
        part: the part of each row, ``[n]``, or None.
        slopes: b and x.
        counts: the number of equal rows that each row stands for, ``[n]``; one is left out.
    """
    n, share = len(weights), weights / weights.sum()
    y = np.asarray(happened, float).reshape(n, -1)
    o = np.zeros_like(y) if offset is None else offset.reshape(n, -1)
    b, x = (np.zeros((n, 0)), np.ones((n, 1))) if slopes is None else slopes
    k, powers = features.shape[1], np.stack([np.ones_like(x), x, x**2])
    penalty = np.zeros(k + b.shape[1]) if penalty is None else penalty
    scale = np.append(np.mean(features**2, axis=0), np.mean(b**2, axis=0) * np.mean(x**2))
    ridge = np.diag(2 * penalty + _RIDGE * np.maximum(scale, 1e-4 * scale.max()))

    def change(t: np.ndarray, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        return (features[rows] @ t[:k])[:, None] + (b[rows] @ t[k:])[:, None] * x[rows]

    def losses(logits: np.ndarray) -> np.ndarray:
        # Avoid a difference of large numbers where an event or its opposite is certain.
        certain = np.maximum(logits, 0.0) - y * logits
        return np.mean(certain + np.log1p(np.exp(-np.abs(logits))), axis=1)

    def curvature(h: np.ndarray, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
        f, s, (h0, h1, h2) = features[rows], b[rows], h[:, rows, None]
        corner = (f * h1).T @ s
        return np.block([[(f * h0).T @ f, corner], [corner.T, (s * h2).T @ s]]) + ridge

    def derivatives(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both derivatives times x^j, averaged over the events of a row, times its share."""
        p = np.where(logits >= 0, 1.0, np.exp(-np.abs(logits))) / (1 + np.exp(-np.abs(logits)))
        both = p - y, p * (1 - p)
        g, h = (share * np.einsum("nk,pnk->pn", z, powers) / y.shape[1] for z in both)
        return g, h

    t, converged = np.zeros(len(penalty)) if start is None else start, False
    logits = o + change(t)
    least = float(share @ losses(logits) + penalty @ t**2)
    for _ in range(_MOST_STEPS):
        g, h = derivatives(logits)
        slope = np.concatenate([features.T @ g[0], b.T @ g[1]]) + 2 * penalty * t
        step = -np.linalg.solve(curvature(h), slope)
        decrement, length, new = -float(slope @ step), 1.0, np.inf
        if decrement < _DECREMENT:
            converged = True
            break
        # Halve the step until the loss falls by a tenth of the linear prediction.
        while length > 1e-6:
            trial = t + length * step
            moved = o + change(trial)
            new = float(share @ losses(moved) + penalty @ trial**2)
            if new <= least - 0.1 * length * decrement:
                break
            length /= 2
        if not new < least:
            converged = decrement < 1e-8
            break
        t, logits, least = trial, moved, new
    g, h = derivatives(logits)
    if part is None:
        a, c = _moves_alone(features, b, np.linalg.inv(curvature(h)), g / counts, h / counts)
        moves = a[:, None] + c[:, None] * x
    else:
        moves = np.zeros((n, x.shape[1]))
        for left_out in range(part.max() + 1):
            inside = part == left_out
            slope = np.concatenate([features[inside].T @ g[0, inside], b[inside].T @ g[1, inside]])
            moves[inside] = change(np.linalg.solve(curvature(h, ~inside), slope), inside)
    # If all decisions are right, the numbers diverge.
    right = np.where(y == 1, logits > 0, (y == 0) & (logits < 0))
    return Regression(t, converged and not bool(np.all(right)), losses(logits + moves))


def _moves_alone(
    features: np.ndarray, b: np.ndarray, inverse: np.ndarray, g: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Changes of a't and b't of each row if it is left out, ``[n]``.

    With the features F = (a, b) of a row, its gradient F'g, its curvature F'CF, and M = F H^{-1} F'
    the step is F (H - F'CF)^{-1} F'g = M (1 - C M)^{-1} g.
    """
    k = features.shape[1]
    of_features, of_slopes = features @ inverse[:k], b @ inverse[k:]
    m00, m01 = np.sum(of_features[:, :k] * features, axis=1), np.sum(of_features[:, k:] * b, axis=1)
    m11 = np.sum(of_slopes[:, k:] * b, axis=1)
    # 1 - C M, and its inverse times g.
    d00, d01 = 1 - h[0] * m00 - h[1] * m01, -h[0] * m01 - h[1] * m11
    d10, d11 = -h[1] * m00 - h[2] * m01, 1 - h[1] * m01 - h[2] * m11
    determinant = np.maximum(d00 * d11 - d01 * d10, 1e-3)
    g0, g1 = (d11 * g[0] - d01 * g[1]) / determinant, (d00 * g[1] - d10 * g[0]) / determinant
    return m00 * g0 + m01 * g1, m01 * g0 + m11 * g1


def spline_fits(
    features: np.ndarray,
    happened: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray | float = 1.0,
) -> Iterator[tuple[float, Regression]]:
    """Penalties on the curvature of splines of `smooth_basis`, and the fit with each."""
    start = None
    for strength in _STRENGTHS.tolist():
        # The first two functions are straight lines, without a penalty.
        penalty = np.where(np.arange(features.shape[1]) < 2, 0.0, strength)
        fit = logistic_regression(features, happened, weights, penalty, start, counts=counts)
        start = fit.numbers
        yield strength, fit


def natural_spline(
    xp: ModuleType, x: ArrayT, knots: ArrayT, values: ArrayT, curvatures: ArrayT
) -> ArrayT:
    """The natural cubic spline at x ``[n]``, linear beyond its knots ``[k]``.

    Values and second derivatives at the knots are ``[k, …]``; the result is ``[n, …]``.
    """
    inside = xp.clip(x, knots[0], knots[-1])
    i = xp.clip(xp.searchsorted(knots, inside) - 1, 0, knots.shape[0] - 2)
    width = knots[i + 1] - knots[i]
    # Fractions of the way to the two knots; beyond the ends the slope there goes on.
    b = (inside - knots[i]) / width
    a = 1 - b
    cubic_a, cubic_b = (a**3 - a) * width**2 / 6, (b**3 - b) * width**2 / 6
    slope_a = -1 / width, -(3 * a**2 - 1) * width / 6
    slope_b = 1 / width, (3 * b**2 - 1) * width / 6
    beyond = x - inside
    of_values = a + beyond * slope_a[0], b + beyond * slope_b[0]
    of_curvatures = cubic_a + beyond * slope_a[1], cubic_b + beyond * slope_b[1]
    axes = (slice(None), *[None] * (values.ndim - 1))
    return (
        of_values[0][axes] * values[i]
        + of_values[1][axes] * values[i + 1]
        + of_curvatures[0][axes] * curvatures[i]
        + of_curvatures[1][axes] * curvatures[i + 1]
    )


def smooth_basis(knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Natural splines with knots ``[k]``: their values and second derivatives there, ``[k, k]``.

    The first two are 1 and x; for all others the integral of f_i'' f_j'' is 1 if i = j, else 0.
    """
    k, width = len(knots), np.diff(knots)
    differences = np.diff(np.diff(np.eye(k), axis=0) / width[:, None], axis=0)
    of_neighbours = np.diag(width[1:-1] / 6, 1)
    overlaps = np.diag((width[:-1] + width[1:]) / 3) + of_neighbours + of_neighbours.T
    second = np.linalg.solve(overlaps, differences)
    sizes, directions = np.linalg.eigh(differences.T @ second)
    # Two eigenvalues are 0, those of straight lines.
    rough = directions[:, 2:] / np.sqrt(np.maximum(sizes[2:], 1e-300))
    values = np.concatenate([np.ones((k, 1)), knots[:, None], rough], axis=1)
    return values, np.pad(second @ values, ((1, 1), (0, 0)))
