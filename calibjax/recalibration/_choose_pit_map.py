"""Choice of the map of the unit interval with the best score on held-out parts."""

from itertools import product
from typing import NamedTuple

import numpy as np

from calibjax.recalibration import _conditional_pit_map as conditional
from calibjax.recalibration import _cross_validation as cross_validation
from calibjax.recalibration import _pit_map as pit_map
from calibjax.recalibration import _pit_map_fits as fits
from calibjax.recalibration._probability_maps import Fitted

# Minimum number of rows for a conditional map: among fewer, hardly any are similar.
_LEAST_CONDITIONAL = 100
# Candidate weights of the map for all forecasts, in rows, and candidate kernel widths.
_COUNTS = (20.0, 60.0, 200.0, 600.0, 2000.0)
_WIDTHS = (1.0, 0.5, 0.25)
# The number of features before covariates: the median and the spread.
_N_OF_FORECAST = 2


class _Mixture(NamedTuple):
    """A mixture of maps for all forecasts: its name, G at the levels, and G without each part.

    `losses` are those of the candidates, and `scores` those of held-out rows, ``[n]``.
    """

    name: str
    line: fits.FittedPITMap
    without: np.ndarray
    losses: dict[str, float]
    scores: np.ndarray


class Found(NamedTuple):
    """The name of a map, the map, losses of candidates, and scores of held-out rows ``[n]``.

    `before` are scores without the map, and `after` those with it; NaN where unknown.
    """

    name: str
    fitted: Fitted
    losses: dict[str, float]
    before: np.ndarray
    after: np.ndarray


def fit_pit_map(method: str, rows: fits.PITMapRows, has_scale: bool) -> Found:
    """Fits and chooses a map, and scores the candidates on held-out rows.

    Args:
        method: "auto", "conditional", "identity" or one of `PIT_MAP_FITS`.
        rows: the rows of the fit.
        has_scale: whether "shift_scale" is fitted before, and not a candidate.
    """
    n, chooses = len(rows.weights), method in ("auto", "conditional")
    if not chooses or n < cross_validation.LEAST_ROWS:
        name, unknown = "identity" if chooses else method, np.zeros(n)
        return Found(name, _for_all(name, fit_of(name, rows), rows), {}, unknown, unknown)
    mixture = _mixture(rows, has_scale)
    losses, before = mixture.losses, rows.scores(rows.levels)
    if rows.features is not None and n >= _LEAST_CONDITIONAL:
        fitted, loss, after = _conditional(rows, mixture, is_sure=method == "auto")
        losses = losses | {"conditional": loss}
        if fitted is not None:
            return Found("conditional", fitted, losses, before, after)
    fitted = _for_all(mixture.name, mixture.line, rows)
    return Found(mixture.name, fitted, losses, before, mixture.scores)


def fit_of(name: str, rows: fits.PITMapRows) -> fits.FittedPITMap:
    """One map for all forecasts."""
    if name == "identity":
        return fits.FittedPITMap(rows.levels, True, "")
    n, inner = float(rows.weights.sum()), slice(None) if rows.z is None else slice(1, -1)
    fit = fits.PIT_MAP_FITS[name](rows.levels[inner], rows.weights @ rows.below[:, inner] / n, n)
    if rows.z is None:
        return fit
    return fit._replace(probabilities=fits.with_fitted_tails(fit.probabilities, rows))


def _for_all(name: str, line: fits.FittedPITMap, rows: fits.PITMapRows) -> Fitted:
    # Without a map quantiles and samples keep their exact values.
    if name == "identity" and rows.known is not None:
        return Fitted((), True, "")
    g = line.probabilities if name == "identity" else _rising(line.probabilities, rows)
    return Fitted(
        (pit_map.PITMap(g, tuple(rows.levels.tolist())),), line.converged, line.description
    )


def _rising(g: np.ndarray, rows: fits.PITMapRows) -> np.ndarray:
    return fits.increasing(g) if rows.z is None else g


def _mixture(rows: fits.PITMapRows, has_scale: bool) -> _Mixture:
    """The mixture of candidates with the least held-out loss.

    "identity" unless the mixture is better by more than a standard error.
    """
    names = ("identity", *(x for x in fits.PIT_MAP_FITS if not (has_scale and x == "shift_scale")))
    parts = [rows.part == k for k in range(rows.part.max() + 1)]
    curves, of_names = [], np.empty((len(rows.weights), len(names)))
    for inside in parts:
        others, own = rows._replace(known=None).chosen(~inside), rows.chosen(inside)
        maps = [_rising(fit_of(name, others).probabilities, rows) for name in names]
        of_names[inside] = np.stack([own.scores(g) for g in maps], axis=1)
        curves.append(np.stack(maps, axis=1))
    found = _shares(rows, parts, np.stack(curves), of_names)
    shares, words = cross_validation.in_words(names, found)
    every = np.array([shares.get(name, 0.0) for name in names])
    without, mixed = np.stack([g @ every for g in curves]), np.empty(len(rows.weights))
    for inside, g in zip(parts, without, strict=True):
        mixed[inside] = rows.chosen(inside).scores(g)
    means = np.average(of_names, axis=0, weights=rows.weights).tolist()
    losses = dict(zip(names, means, strict=True))
    before = of_names[:, 0]
    if cross_validation.choose_in_turn(before, [mixed], rows.weights, rows.part) is None:
        unchanged = np.stack([g[:, 0] for g in curves])
        return _Mixture("identity", fit_of("identity", rows), unchanged, losses, before)
    chosen = [fit_of(name, rows) for name in shares]
    if len(chosen) == 1:
        return _Mixture(next(iter(shares)), chosen[0], without, losses, mixed)
    g = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return _Mixture("mixture", fits.FittedPITMap(g, converged, words), without, losses, mixed)


def _shares(
    rows: fits.PITMapRows, parts: list[np.ndarray], curves: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """The shares of candidates with the least loss, from G without each part, ``[P, K, J]``.

    `scores` are those of rows, ``[n, J]``; for densities, log scores.
    """
    if rows.z is not None:
        least = scores.min(axis=1, keepdims=True)
        return cross_validation.mixture_weights(np.exp(least - scores), rows.weights)
    if rows.seen is not None:
        of_rows = [rows.probabilities(g[rows.part]) for g in np.moveaxis(curves, 2, 0)]
        return cross_validation.mixture_weights(np.stack(of_rows, axis=1), rows.weights)
    of_cells = np.stack([rows.weights[i] @ fits.cells(rows.below[i]) for i in parts])
    between = np.swapaxes(fits.cells(np.swapaxes(curves, 1, 2)), 1, 2)
    return cross_validation.mixture_weights(between.reshape(-1, curves.shape[2]), of_cells.ravel())


def _conditional(
    rows: fits.PITMapRows, mixture: _Mixture, is_sure: bool
) -> tuple[Fitted | None, float, np.ndarray]:
    """The conditional map with the least held-out loss, this loss, and scores of rows.

    The map is None if the map for all forecasts has a lower loss or, if `is_sure`, unless the
    conditional one is better by more than a standard error between parts.
    """
    from scipy.special import ndtri

    kept, n = rows, len(rows.weights)
    which = np.linspace(0, n - 1, min(conditional.MOST_ROWS, n)).astype(int)
    if n > which.size:
        kept = rows.chosen(which)
    assert kept.features is not None  # the caller has looked
    grid = conditional.grid_of(kept.features)
    scores = ndtri(conditional.ranks_among(np, grid, kept.features))
    # The number of features of the forecast alone, and with all covariates.
    sizes = sorted({_N_OF_FORECAST, scores.shape[1]})
    found = [_held_out_scores(kept, scores[:, :size], mixture.without) for size in sizes]
    choices = list(product(sizes, _WIDTHS, _COUNTS))
    of_choices = np.concatenate(found)
    losses = np.average(of_choices, axis=1, weights=kept.weights)
    best = int(np.argmin(losses))
    of_all, loss = mixture.scores[which], float(losses[best])
    is_better = loss < np.average(of_all, weights=kept.weights)
    if is_sure:
        pair = of_all, [of_choices[best]]
        is_better = cross_validation.choose_in_turn(*pair, kept.weights, kept.part) is not None
    if not is_better:
        return None, loss, of_all
    after = np.full(n, np.nan)
    after[which] = of_choices[best]
    size, width, count = choices[best]
    line = conditional.ConditionalPITMap(
        probabilities=_rising(mixture.line.probabilities, rows),
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
    return Fitted((line,), mixture.line.converged, words), loss, after


def _held_out_scores(rows: fits.PITMapRows, scores: np.ndarray, without: np.ndarray) -> np.ndarray:
    """Scores ``[C, n]`` of held-out rows after the map of each width and count."""
    found = np.empty((len(_WIDTHS) * len(_COUNTS), len(rows.weights)))
    # Minus half of a squared distance is a product of sides.  float32, the precision of most maps,
    # takes half of the time.
    one, half = np.ones((len(scores), 1)), -np.sum(scores**2, axis=1, keepdims=True) / 2
    below = rows.weights[:, None] * np.hstack([rows.below, one])
    sides = np.hstack([scores, half, one]), np.hstack([scores, one, half])
    below, left, right = (x.astype(np.float32) for x in (below, *sides))
    for k in range(rows.part.max() + 1):
        is_inside = rows.part == k
        inside, others, choice = rows.chosen(is_inside), below[~is_inside], 0
        alike = np.exp(left[is_inside] @ right[~is_inside].T)
        for number in range(len(_WIDTHS)):
            if number:  # exp takes longer than two squares; each width is half of the last one.
                alike = np.square(np.square(alike))
            sums = (alike @ others).astype(float)
            for count in _COUNTS:
                g = (sums[:, :-1] + count * without[k]) / (sums[:, -1:] + count)
                found[choice, is_inside] = inside.scores(fits.increasing(g))
                choice += 1
    return found
