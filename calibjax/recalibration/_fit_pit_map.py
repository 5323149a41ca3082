"""The map of PIT values that predicts parts of the rows best which did not fit it."""

from itertools import product
from typing import NamedTuple

import numpy as np

from calibjax._base.compile import filled_up
from calibjax.recalibration import _conditional_pit_map as conditional
from calibjax.recalibration import _cross_validation as cross_validation
from calibjax.recalibration._pit_map import PITMap
from calibjax.recalibration._pit_map_fits import (
    PIT_MAP_FITS,
    FittedPITMap,
    PITMapRows,
    cells,
    increasing,
)
from calibjax.recalibration._probability_maps import Chosen, Fitted

#: The least number of rows with a choice: parts of fewer have hardly a target in the tails.
LEAST_ROWS = 20
# The least number of rows for a conditional map: next to none of fewer are similar.
_LEAST_CONDITIONAL = 100
# How many rows the map of all forecasts may stand for, and widths of what is alike.
_COUNTS = (20.0, 60.0, 200.0, 600.0, 2000.0)
_WIDTHS = (1.0, 0.5, 0.25)
# The number of features before covariates: the median and the spread.
_N_OF_FORECAST = 2


class _Mixture(NamedTuple):
    """A mixture of maps for all forecasts: its name, G at the levels, and that without each part.

    The losses are those of candidates.
    """

    name: str
    line: FittedPITMap
    without: np.ndarray
    losses: dict[str, float]


def fit_pit_map(method: str, rows: PITMapRows, of_members: bool = False) -> Chosen:
    """The method that was chosen, its map, and the losses of the candidates on held-out rows.

    Args:
        method: "auto", "conditional", "nothing" or one of `PIT_MAP_FITS`.
        rows: what fits them.
        of_members: whether these have been shifted and scaled in their own units.
    """
    n, chooses = len(rows.weights), method in ("auto", "conditional")
    if not chooses or n < LEAST_ROWS:
        name = "nothing" if chooses else method
        return name, _for_all(name, fit_of(name, rows), rows), {}
    mixture = _mixture(rows, of_members)
    found, losses = None, mixture.losses
    if rows.features is not None and n >= _LEAST_CONDITIONAL:
        found, loss = _conditional(rows, mixture, is_sure=method == "auto")
        losses = losses | {"conditional": loss}
    if found is not None:
        return "conditional", found, losses
    return mixture.name, _for_all(mixture.name, mixture.line, rows), losses


def fit_of(name: str, rows: PITMapRows) -> FittedPITMap:
    """One map for all forecasts."""
    if name == "nothing":
        return FittedPITMap(rows.levels, True, "")
    n = float(rows.weights.sum())
    return PIT_MAP_FITS[name](rows.levels, rows.weights @ rows.below / n, n)


def _for_all(name: str, line: FittedPITMap, rows: PITMapRows) -> Fitted:
    g = line.probabilities if name == "nothing" else increasing(line.probabilities)
    return Fitted((PITMap(g, tuple(rows.levels.tolist())),), line.converged, line.description)


def _mixture(rows: PITMapRows, of_members: bool) -> _Mixture:
    """The mixture of candidates with the least loss in parts that did not fit them.

    It is "nothing" unless the mixture is better by more than a standard error.
    """
    names = ("nothing", *(x for x in PIT_MAP_FITS if not (of_members and x == "shift_scale")))
    parts = [rows.part == k for k in range(rows.part.max() + 1)]
    curves = []
    for inside in parts:
        others = rows.chosen(~inside)
        fits = [increasing(fit_of(name, others).probabilities) for name in names]
        curves.append(np.stack(fits, axis=1))
    shares, words = cross_validation.in_words(names, _shares(rows, parts, np.stack(curves)))
    every = np.array([shares.get(name, 0.0) for name in names])
    without = np.stack([g @ every for g in curves])
    table = np.array([[_loss(rows, k, g) for g in curves[k].T] for k in range(len(parts))])
    mixed = np.array([_loss(rows, k, g) for k, g in enumerate(without)])
    losses = dict(zip(names, (table.sum(axis=0) / rows.weights.sum()).tolist(), strict=True))
    if not is_clear(table[:, 0] - mixed):
        nothing = np.stack([g[:, 0] for g in curves])
        return _Mixture("nothing", fit_of("nothing", rows), nothing, losses)
    chosen = [fit_of(name, rows) for name in shares]
    if len(chosen) == 1:
        return _Mixture(next(iter(shares)), chosen[0], without, losses)
    g = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return _Mixture("mixture", FittedPITMap(g, converged, words), without, losses)


def _shares(rows: PITMapRows, parts: list[np.ndarray], curves: np.ndarray) -> np.ndarray:
    """The shares of candidates with the least loss, from their G without each part, ``[P, K, J]``.

    The rows of one part have one curve, so that sums over them are all that counts, unless
    intervals are known of them.
    """
    if rows.seen is not None:
        of_rows = [rows.probabilities(g[rows.part]) for g in np.moveaxis(curves, 2, 0)]
        return cross_validation.mixture_weights(np.stack(of_rows, axis=1), rows.weights)
    if rows.distances is None:
        of_cells = np.stack([rows.weights[i] @ cells(rows.below[i]) for i in parts])
        between = np.swapaxes(cells(np.swapaxes(curves, 1, 2)), 1, 2)
        return cross_validation.mixture_weights(
            between.reshape(-1, curves.shape[2]), of_cells.ravel()
        )
    counts = rows.weights[:, None] * rows.distances
    of_levels = np.stack([counts[i].sum(axis=0) for i in parts])
    below = np.stack([(counts * rows.below)[i].sum(axis=0) for i in parts])
    shares = below / np.where(of_levels > 0, of_levels, 1.0)
    values = curves.reshape(-1, curves.shape[2])
    return cross_validation.least_squares_weights(values, shares.ravel(), of_levels.ravel())


def _loss(rows: PITMapRows, k: int, g: np.ndarray) -> float:
    """The sum of the scores of a part, weighted."""
    inside = rows.chosen(rows.part == k)
    return float(inside.weights @ inside.scores(g))


def is_clear(gains: np.ndarray, errors: float = 1.0) -> bool:
    """Whether a sum of gains in parts is larger than `errors` of its standard errors."""
    return bool(gains.sum() > errors * np.sqrt(gains.size) * np.std(gains, ddof=1))


def _conditional(rows: PITMapRows, mixture: _Mixture, is_sure: bool) -> tuple[Fitted | None, float]:
    """The map for each forecast that predicts parts best, and its loss there.

    None if the map for all forecasts predicts them better; if `is_sure`, also if it is worse by
    less than a standard error of the difference between parts.
    """
    kept = rows
    if len(rows.weights) > conditional.MOST_ROWS:
        kept = rows.chosen(np.linspace(0, len(rows.weights) - 1, conditional.MOST_ROWS).astype(int))
    assert kept.features is not None  # the caller has looked
    grid = conditional.grid_of(kept.features)
    features = filled_up(kept.features, conditional.MOST_ROWS)
    scores = np.asarray(conditional.scores_among(grid, features), float)[: len(kept.features)]
    # What a forecast tells alone, and with all covariates.
    sizes = sorted({_N_OF_FORECAST, scores.shape[1]})
    tables = [_held_out_losses(kept, scores[:, :size], mixture.without) for size in sizes]
    of_all, losses = tables[0][0], np.stack([table[1:] for table in tables])
    choices = list(product(sizes, _WIDTHS, _COUNTS))
    losses = losses.reshape(len(choices), -1)
    best = int(np.argmin(losses.sum(axis=1)))
    loss = float(losses[best].sum() / kept.weights.sum())
    if not is_clear(of_all - losses[best], 1.0 if is_sure else 0.0):
        return None, loss
    size, width, count = choices[best]
    line = conditional.ConditionalPITMap(
        probabilities=increasing(mixture.line.probabilities),
        count=np.array(count),
        width=np.array(width),
        below=kept.below,
        scores=scores[:, :size],
        weights=kept.weights,
        grid=grid[:size],
        levels=tuple(rows.levels.tolist()),
    )
    name = mixture.line.description if mixture.name == "mixture" else mixture.name
    words = f"by {len(scores)} rows, beside which {name} counts as {count:.0f}, width {width}"
    if len(sizes) > 1:
        words += ", with covariates" if size > _N_OF_FORECAST else ", without covariates"
    return Fitted((line,), mixture.line.converged, words), loss


def _held_out_losses(rows: PITMapRows, scores: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The loss of each part, of the map for all, and of maps by rows of other parts.

    The first row is that of the map for all, and one for each width and count follows.
    """
    found = []
    for k in range(rows.part.max() + 1):
        is_inside = rows.part == k
        inside, others = rows.chosen(is_inside), rows.chosen(~is_inside)
        gaps = np.sum((scores[is_inside, None] - scores[None, ~is_inside]) ** 2, axis=2)
        losses = [inside.weights @ inside.scores(without[k])]
        for width in _WIDTHS:
            alike = others.weights * np.exp(-gaps / (2 * width**2))
            sums, total = alike @ others.below, alike.sum(axis=1, keepdims=True)
            for count in _COUNTS:
                g = increasing((sums + count * without[k]) / (total + count))
                losses.append(inside.weights @ inside.scores(g))
        found.append(losses)
    return np.array(found).T
