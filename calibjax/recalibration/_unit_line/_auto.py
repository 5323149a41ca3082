"""Rows as sums over blocks of them, and the map for given rows."""

import numpy as np

from calibjax.recalibration._mixture import best_mixture
from calibjax.recalibration._unit_line._fits import LINES, FittedLine, fit_nothing, increasing

_BLOCKS = 5
# A block of fewer rows has hardly a target in the tails.
_LEAST_ROWS = 20


def fit_line(
    method: str, levels: np.ndarray, below: np.ndarray, weights: np.ndarray
) -> tuple[str, FittedLine, dict[str, float]]:
    """The method that was chosen, its map, and the losses of the candidates on held-out rows.

    Args:
        method: "auto", or one of `LINES`, or "nothing".
        levels: where the map is fitted, ``[K]``.
        below: how much of U of each row is at most each level, from 0 to 1, ``[n, K]``.
        weights: of rows, positive, ``[n]``.
    """
    losses: dict[str, float] = {}
    if method != "auto":
        fitted = _fit(method, levels, below, weights)
    elif len(weights) < _LEAST_ROWS:
        method, fitted = "nothing", _fit("nothing", levels, below, weights)
    else:
        method, fitted, losses = _mixture(levels, below, weights)
    if method != "nothing":
        fitted = fitted._replace(probabilities=increasing(fitted.probabilities))
    return method, fitted, losses


def _fit(name: str, levels: np.ndarray, below: np.ndarray, weights: np.ndarray) -> FittedLine:
    total = weights.sum()
    shares, n = weights @ below / total, float(total * (total / np.sum(weights**2)))
    return (LINES | {"nothing": fit_nothing})[name](levels, shares, n)


def _mixture(
    levels: np.ndarray, below: np.ndarray, weights: np.ndarray
) -> tuple[str, FittedLine, dict[str, float]]:
    """The mixture of candidates with the least loss in blocks that did not fit them.

    Blocks are of rows one after another: neighbours in time may be alike.
    """
    names = ("nothing", *LINES)
    block = np.arange(len(weights)) * _BLOCKS // len(weights)
    # A block and a level are an event of a certain weight, and its opposite.
    probabilities, counts = [], []
    for k in range(_BLOCKS):
        inside = block == k
        fits = [_fit(name, levels, below[~inside], weights[~inside]) for name in names]
        g = np.stack([increasing(fit.probabilities) for fit in fits], axis=1)
        events, total = weights[inside] @ below[inside], weights[inside].sum()
        probabilities += [g, 1 - g]
        counts += [events, total - events]
    p, count = np.concatenate(probabilities), np.concatenate(counts)
    losses = -(count @ np.log(p)) / count.sum()
    of_losses = dict(zip(names, map(float, losses), strict=True))
    shares, words = best_mixture(names, p, count)
    chosen = [_fit(name, levels, below, weights) for name in shares]
    if len(chosen) == 1:
        return next(iter(shares)), chosen[0], of_losses
    mixed = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return "mixture", FittedLine(mixed, converged, words), of_losses
