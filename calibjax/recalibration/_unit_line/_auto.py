"""The map of the unit line for given rows: candidates are judged in blocks that did not fit them.

Blocks are of rows one after another: neighbours in time may be alike.
"""

from typing import NamedTuple

import numpy as np

from calibjax.recalibration._labels import Fitted
from calibjax.recalibration._mixture import best_mixture
from calibjax.recalibration._unit_line._conditional import (
    MOST_ROWS,
    ConditionalLine,
    grid_of,
    scores_among,
)
from calibjax.recalibration._unit_line._fits import LINES, FittedLine, fit_nothing, increasing
from calibjax.recalibration._unit_line._hidden import mass_below_given
from calibjax.recalibration._unit_line._line import UnitLine

_BLOCKS = 5
# A block of fewer rows has hardly a target in the tails.
_LEAST_ROWS = 20
# With fewer rows next to none are alike.
_LEAST_CONDITIONAL = 100
# How many rows the map of all forecasts may stand for, and widths of what is alike.
_COUNTS = (20.0, 60.0, 200.0, 600.0, 2000.0)
_WIDTHS = (1.0, 0.5, 0.25)


class LineRows(NamedTuple):
    """What rows say of a map of the unit line.

    Args:
        levels: where the map is fitted, ``[K]``.
        below: how much of U of each row is at most each level, from 0 to 1, ``[n, K]``.
        weights: positive, ``[n]``; their sum is how many equal ones would be as exact.
        features: the median and the logarithm of the spread of each forecast, ``[n, 2]``, or None
            if no map looks at them.
    """

    levels: np.ndarray
    below: np.ndarray
    weights: np.ndarray
    features: np.ndarray | None = None

    def part(self, chosen: np.ndarray) -> "LineRows":
        features = None if self.features is None else self.features[chosen]
        return LineRows(self.levels, self.below[chosen], self.weights[chosen], features)

    def blocks(self) -> np.ndarray:
        """The number of the block of each row, ``[n]``."""
        return np.arange(len(self.weights)) * _BLOCKS // len(self.weights)


class _Mixture(NamedTuple):
    """A mixture of maps for all forecasts: its name, G at the levels, and that without each block.

    The losses are those of candidates, and of the mixture in each block.
    """

    name: str
    line: FittedLine
    without: np.ndarray
    losses: dict[str, float]


def fit_line(method: str, rows: LineRows) -> tuple[str, Fitted, dict[str, float]]:
    """The method that was chosen, its map, and the losses of the candidates on held-out rows.

    Args:
        method: "auto", "conditional", "nothing" or one of `LINES`.
        rows: what fits them.
    """
    n = len(rows.weights)
    if method not in ("auto", "conditional"):
        return method, _for_all(method, _fit(method, rows), rows), {}
    if n < _LEAST_ROWS:
        return "nothing", _for_all("nothing", _fit("nothing", rows), rows), {}
    mixture = _mixture(rows)
    if rows.features is None or n < _LEAST_CONDITIONAL:
        return mixture.name, _for_all(mixture.name, mixture.line, rows), mixture.losses
    found, loss = _conditional(rows, mixture, is_sure=method == "auto")
    losses = mixture.losses | {"conditional": loss}
    if found is None:
        return mixture.name, _for_all(mixture.name, mixture.line, rows), losses
    return "conditional", found, losses


def hidden_below(
    method: str, levels: np.ndarray, low: np.ndarray, high: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """What is below each level ``[n, K]`` of targets that are known by intervals of U alone.

    A map of `LINES` finds it for itself, and a smooth one for choices among several maps.
    """
    name = method if method in LINES else "pit_spline"

    def fit(below: np.ndarray) -> np.ndarray:
        return increasing(_fit(name, LineRows(levels, below, weights)).probabilities)

    return mass_below_given(fit, levels, low, high)


def _for_all(name: str, line: FittedLine, rows: LineRows) -> Fitted:
    g = line.probabilities if name == "nothing" else increasing(line.probabilities)
    return Fitted((UnitLine(g, tuple(rows.levels.tolist())),), line.converged, line.words)


def _fit(name: str, rows: LineRows) -> FittedLine:
    n = rows.weights.sum()
    shares = rows.weights @ rows.below / n
    return (LINES | {"nothing": fit_nothing})[name](rows.levels, shares, float(n))


def _mixture(rows: LineRows) -> _Mixture:
    """The mixture of candidates with the least loss in blocks that did not fit them."""
    names = ("nothing", *LINES)
    block = rows.blocks()
    # A block and a level are an event of a certain weight, and its opposite.
    curves, counts = [], []
    for k in range(_BLOCKS):
        others, inside = rows.part(block != k), rows.part(block == k)
        fits = [increasing(_fit(name, others).probabilities) for name in names]
        curves.append(np.stack(fits, axis=1))
        events, total = inside.weights @ inside.below, inside.weights.sum()
        counts.append(np.concatenate([events, total - events]))
    p = np.concatenate([np.concatenate([g, 1 - g]) for g in curves])
    count = np.concatenate(counts)
    losses = -(count @ np.log(p)) / count.sum()
    of_losses = dict(zip(names, map(float, losses), strict=True))
    shares, words = best_mixture(names, p, count)
    chosen = [_fit(name, rows) for name in shares]
    every = np.array([shares.get(name, 0.0) for name in names])
    without = np.stack([g @ every for g in curves])
    if len(chosen) == 1:
        return _Mixture(next(iter(shares)), chosen[0], without, of_losses)
    mixed = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return _Mixture("mixture", FittedLine(mixed, converged, words), without, of_losses)


def _conditional(rows: LineRows, mixture: _Mixture, is_sure: bool) -> tuple[Fitted | None, float]:
    """The map for each forecast that predicts blocks best, and its loss there.

    None if the map for all forecasts predicts them better; if `is_sure`, also if it is worse by
    less than a standard error of the difference between blocks.
    """
    kept = rows
    if len(rows.weights) > MOST_ROWS:
        kept = rows.part(np.linspace(0, len(rows.weights) - 1, MOST_ROWS).astype(int))
    assert kept.features is not None  # the caller has looked
    grid = grid_of(kept.features)
    scores = np.asarray(scores_among(grid, kept.features), float)
    losses = _held_out_losses(kept, scores, mixture.without)
    means = losses.mean(axis=1)
    best = int(np.argmin(means[1:])) + 1
    gain = losses[0] - losses[best]
    least = np.std(gain, ddof=1) / np.sqrt(_BLOCKS) if is_sure else 0.0
    if not gain.mean() > least:
        return None, float(means[best])
    width, count = _WIDTHS[(best - 1) // len(_COUNTS)], _COUNTS[(best - 1) % len(_COUNTS)]
    line = ConditionalLine(
        probabilities=increasing(mixture.line.probabilities),
        count=np.array(count),
        width=np.array(width),
        below=kept.below,
        scores=scores,
        weights=kept.weights,
        grid=grid,
        levels=tuple(rows.levels.tolist()),
    )
    of_all = mixture.line.words if mixture.name == "mixture" else mixture.name
    words = f"by {len(scores)} rows, beside which {of_all} counts as {count:.0f}, width {width}"
    return Fitted((line,), mixture.line.converged, words), float(means[best])


def _held_out_losses(rows: LineRows, scores: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The mean loss in each block, of the map for all, and of maps by rows of other blocks.

    The first row is that of the map for all, and one for each width and count follows.
    """
    block = rows.blocks()
    found = []
    for k in range(_BLOCKS):
        inside, others = block == k, block != k
        below, weights = rows.below[inside], rows.weights[inside]
        gaps = np.sum((scores[inside, None] - scores[None, others]) ** 2, axis=2)

        def loss(g: np.ndarray, below: np.ndarray = below, weights: np.ndarray = weights) -> float:
            of_rows = -np.mean(below * np.log(g) + (1 - below) * np.log1p(-g), axis=1)
            return float(weights @ of_rows / weights.sum())

        losses = [loss(without[k][None])]
        for width in _WIDTHS:
            alike = rows.weights[others] * np.exp(-gaps / (2 * width**2))
            sums, total = alike @ rows.below[others], alike.sum(axis=1, keepdims=True)
            for count in _COUNTS:
                g = increasing((sums + count * without[k]) / (total + count))
                losses.append(loss(g))
        found.append(losses)
    return np.array(found).T
