"""Fits of maps to numbers: what data say of the unit interval, and which map suits them best.

The best map predicts parts of the rows best that did not fit it.
"""

from itertools import product
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._base.compile import filled_up, quick_jit
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.covariates import CovariatesLike
from calibjax._data.data import Data
from calibjax._data.interval_censored import Between
from calibjax._data.padding import padded
from calibjax._data.typed_column import NamedColumns
from calibjax._numbers.validity import are_whole
from calibjax.distributions import Counts, Empirical, SurvivalCurve
from calibjax.recalibration import _conditional_pit_map as conditional
from calibjax.recalibration import _cross_validation as cross_validation
from calibjax.recalibration import _member_by_member as members
from calibjax.recalibration import _pit_map as pit_map
from calibjax.recalibration import _pit_map_fits as fits
from calibjax.recalibration._fit_groups import fit_pit_map_groups
from calibjax.recalibration._probability_maps import Chosen, Fitted
from calibjax.recalibration._recalibrator import Recalibrator, recalibrator_of
from calibjax.scores.pit_intervals import PITInterval, mass_below, pit_interval

OF_NUMBERS = ("auto", "nothing", *fits.PIT_MAP_FITS, "conditional", "conformal")
# The number of parts of the rows that are left out in turn.
_N_PARTS = 10
_LOG_SCORE = "log score minus that of the original forecast"


def fit_numbers(
    data: Data,
    method: str,
    groups: NamedColumns | None,
    covariates: CovariatesLike | None,
    lower: float | None,
) -> Recalibrator:
    """`fit_recalibrator` of checked data."""
    predictions, targets = data.predictions, data.targets
    check_choice("method for numbers", method, OF_NUMBERS)
    is_conditional = method in ("auto", "conditional")
    if covariates is not None and not is_conditional:
        raise ValueError(
            f"method={method!r} does not support covariates; use 'conditional' or 'auto'."
        )
    kept, counts = data.counted()
    n, lower = int(kept.sum()), _checked_bound(lower, data, kept)
    whole = padded(data)
    _check_complete(whole, kept)
    names, columns = conditional.read_covariates(covariates, data.n, kept)
    of_members = isinstance(predictions, Empirical) and (is_conditional or method == "shift_scale")
    needs_parts = is_conditional or of_members or groups is not None
    part = cross_validation.parts_of(data, kept, _N_PARTS) if needs_parts else None
    fit = {"n_rows": n, "covariates": names, "lower": lower, "score": _LOG_SCORE}
    # Whole numbers between which a level lies would lose the coverage that "conformal" knows.
    fit["is_whole"] = method != "conformal" and _is_whole(data, kept)
    if method == "conformal":
        _check_conformal(data, groups)
        levels = np.asarray(pit_map.known_levels(predictions))
        chosen: Chosen = method, pit_map.fit_conformal(data, levels, kept), {}
        return recalibrator_of(predictions, chosen, None, **fit)
    if part is None:
        # Neighbours in the order of the rows may be alike.
        part = np.arange(n) * min(_N_PARTS, n) // n
    if of_members:
        parts = *members.parts_of_members(whole.predictions), whole.targets
        known = members.MemberRows(*(*(_known(x, kept) for x in parts), counts, part))
        first = members.fit_members(known, method)
        for step in first[1].steps:
            whole = whole.replace(predictions=step(whole.predictions))
        method = "nothing" if method == "shift_scale" else method
    rows = _pit_map_rows(whole, method, kept, counts, part)
    if rows.distances is not None:
        is_hidden = isinstance(targets, Between)
        fit["score"] = "CRPS with censored targets filled in" if is_hidden else "CRPS"
    # It makes spreads of members equal, which lowers the CRPS and takes ranks from being even.
    if is_conditional and not (of_members and method == "auto" and columns is None):
        features = _known(conditional.median_and_spread(whole.predictions), kept)
        if columns is not None:
            features = np.concatenate([features, columns[kept]], axis=1)
        rows = rows._replace(features=features)
    chosen = fit_pit_map(method, rows, of_members)
    if of_members:
        chosen = members.one_after_another(first, chosen, groups is not None)
    name, fitted, losses = chosen
    fitted = fitted._replace(steps=conditional.with_filled_rows(fitted.steps, data.n))
    of_groups = None
    if groups is not None:
        filled = None if columns is None else filled_up(columns)[: whole.n]
        g = _values(fitted.steps[-1], whole.predictions, filled)
        g = _known(np.broadcast_to(g, (whole.n, rows.levels.size)), kept)
        g = np.maximum(g, np.finfo(np.float32).tiny)
        of_groups = fit_pit_map_groups(groups, kept, g, rows)
    return recalibrator_of(predictions, (name, fitted, losses), of_groups, **fit)


def _check_conformal(data: Data, groups: NamedColumns | None) -> None:
    """A ValueError if rows do not count alike, or are not known, or have groups."""
    if data.weights is not None:
        raise ValueError("method='conformal' does not support weights.")
    if groups is not None:
        raise ValueError("method='conformal' does not support groups.")
    if isinstance(data.targets, Between):
        raise ValueError("targets must be known for method 'conformal', got Between.")
    if isinstance(data.predictions, SurvivalCurve):
        raise TypeError("predictions must have quantiles for 'conformal', got SurvivalCurve.")


def _checked_bound(lower: float | None, data: Data, kept: np.ndarray) -> float | None:
    """The bound, if recalibrated predictions can keep it and no target that counts is below it."""
    if lower is None:
        return None
    if isinstance(lower, bool) or not (
        isinstance(lower, (int, float, np.number)) and np.isfinite(lower)
    ):
        raise ValueError(f"lower must be a finite number or None, got {lower!r}.")
    if not isinstance(data.predictions, KnownQuantiles):
        raise ValueError(
            "lower is supported for quantiles and samples only, got "
            f"{type(data.predictions).__name__} predictions."
        )
    targets = data.targets
    ends = np.asarray(targets.high if isinstance(targets, Between) else targets)
    below = kept & (ends < lower)
    if below.any():
        row = int(np.argmax(below))
        raise ValueError(
            f"lower must not exceed any target; got {lower:g}, target {ends[row]:g} in row {row}."
        )
    return float(lower)


def _is_whole(data: Data, kept: np.ndarray) -> bool:
    """Whether all targets, quantiles and samples of the kept rows are whole numbers, as counts."""
    if not isinstance(data.predictions, KnownQuantiles) or isinstance(data.targets, Between):
        return False
    values = np.asarray(pit_map.known_quantiles(data.predictions)[1])[kept]
    return are_whole(values, np.asarray(data.targets)[kept])


def _check_complete(data: Data, kept: np.ndarray) -> None:
    """A ValueError if in padded data a table up to max_count would lack counts that are likely."""
    if not isinstance(data.predictions, Counts):
        return
    too_few = kept & ~np.asarray(pit_map.are_complete(data.predictions))[: kept.size]
    if too_few.any():
        raise ValueError(
            "max_count must be so large that larger counts have a probability below 4e-18 in "
            f"every row, got {data.predictions.max_count}, which row {np.argmax(too_few)} may "
            "exceed."
        )


def _pit_map_rows(
    data: Data, method: str, kept: np.ndarray, counts: np.ndarray, part: np.ndarray
) -> fits.PITMapRows:
    """What padded data say of the unit interval in rows that count."""
    predictions = data.predictions
    levels = np.asarray(pit_map.known_levels(predictions))
    counts = counts * (counts.sum() / np.sum(counts**2))
    pit, seen = pit_interval(data), None
    low, high = (fits.at_levels(levels, np.asarray(x, float)) for x in pit)
    is_open = isinstance(data.targets, Between) or isinstance(predictions, SurvivalCurve)
    if is_open or predictions.target_kind == "integer":
        low, high = _known(low, kept), _known(high, kept)
        below = fits.below_of_intervals(method, levels, low, high, counts)
        seen = fits.seen_cells(levels, low, high)
    else:
        dtype = pit.low.dtype
        ends = PITInterval(jnp.asarray(low, dtype), jnp.asarray(high, dtype))
        below = _known(_mass_below(ends, levels.astype(dtype)), kept)
    rows = fits.PITMapRows(levels, below, counts, part, seen=seen)
    if not isinstance(predictions, KnownQuantiles):
        return rows
    quantiles = _known(pit_map.quantiles_at(predictions, levels), kept)
    rows = rows._replace(distances=fits.distances_of(quantiles))
    if isinstance(data.targets, Between):
        return rows
    return rows._replace(beyond=fits.beyond_quantiles(quantiles, _known(data.targets, kept)))


def _known(rows: ArrayLike, kept: np.ndarray) -> np.ndarray:
    """What is known of the rows that count, which others follow that padding added."""
    return np.asarray(rows, float)[: kept.size][kept]


_mass_below = quick_jit(mass_below, light=True)
# G of a map, of predictions and covariates.
_values = quick_jit(lambda line, *of_rows: line.values(*of_rows), light=True)


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
    line: fits.FittedPITMap
    without: np.ndarray
    losses: dict[str, float]


def fit_pit_map(method: str, rows: fits.PITMapRows, of_members: bool = False) -> Chosen:
    """The method that was chosen, its map, and the losses of the candidates on held-out rows.

    Args:
        method: "auto", "conditional", "nothing" or one of `PIT_MAP_FITS`.
        rows: what fits them.
        of_members: whether these have been shifted and scaled in their own units.
    """
    n, chooses = len(rows.weights), method in ("auto", "conditional")
    if not chooses or n < cross_validation.LEAST_ROWS:
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


def fit_of(name: str, rows: fits.PITMapRows) -> fits.FittedPITMap:
    """One map for all forecasts."""
    if name == "nothing":
        return fits.FittedPITMap(rows.levels, True, "")
    n = float(rows.weights.sum())
    return fits.PIT_MAP_FITS[name](rows.levels, rows.weights @ rows.below / n, n)


def _for_all(name: str, line: fits.FittedPITMap, rows: fits.PITMapRows) -> Fitted:
    g = line.probabilities if name == "nothing" else fits.increasing(line.probabilities)
    return Fitted(
        (pit_map.PITMap(g, tuple(rows.levels.tolist())),), line.converged, line.description
    )


def _mixture(rows: fits.PITMapRows, of_members: bool) -> _Mixture:
    """The mixture of candidates with the least loss in parts that did not fit them.

    It is "nothing" unless the mixture is better by more than a standard error.
    """
    names = ("nothing", *(x for x in fits.PIT_MAP_FITS if not (of_members and x == "shift_scale")))
    parts = [rows.part == k for k in range(rows.part.max() + 1)]
    curves = []
    for inside in parts:
        others = rows.chosen(~inside)
        maps = [fits.increasing(fit_of(name, others).probabilities) for name in names]
        curves.append(np.stack(maps, axis=1))
    shares, words = cross_validation.in_words(names, _shares(rows, parts, np.stack(curves)))
    every = np.array([shares.get(name, 0.0) for name in names])
    without = np.stack([g @ every for g in curves])
    table = np.array([[_loss(rows, k, g) for g in curves[k].T] for k in range(len(parts))])
    mixed = np.array([_loss(rows, k, g) for k, g in enumerate(without)])
    losses = dict(zip(names, (table.sum(axis=0) / rows.weights.sum()).tolist(), strict=True))
    if not cross_validation.is_clear(table[:, 0] - mixed):
        nothing = np.stack([g[:, 0] for g in curves])
        return _Mixture("nothing", fit_of("nothing", rows), nothing, losses)
    chosen = [fit_of(name, rows) for name in shares]
    if len(chosen) == 1:
        return _Mixture(next(iter(shares)), chosen[0], without, losses)
    g = np.array(list(shares.values())) @ np.stack([fit.probabilities for fit in chosen])
    converged = all(fit.converged for fit in chosen)
    return _Mixture("mixture", fits.FittedPITMap(g, converged, words), without, losses)


def _shares(rows: fits.PITMapRows, parts: list[np.ndarray], curves: np.ndarray) -> np.ndarray:
    """The shares of candidates with the least loss, from their G without each part, ``[P, K, J]``.

    The rows of one part have one curve, so that sums over them are all that counts, unless
    intervals are known of them.
    """
    if rows.seen is not None:
        of_rows = [rows.probabilities(g[rows.part]) for g in np.moveaxis(curves, 2, 0)]
        return cross_validation.mixture_weights(np.stack(of_rows, axis=1), rows.weights)
    if rows.distances is None:
        of_cells = np.stack([rows.weights[i] @ fits.cells(rows.below[i]) for i in parts])
        between = np.swapaxes(fits.cells(np.swapaxes(curves, 1, 2)), 1, 2)
        return cross_validation.mixture_weights(
            between.reshape(-1, curves.shape[2]), of_cells.ravel()
        )
    counts = rows.weights[:, None] * rows.distances
    of_levels = np.stack([counts[i].sum(axis=0) for i in parts])
    below = np.stack([(counts * rows.below)[i].sum(axis=0) for i in parts])
    shares = below / np.where(of_levels > 0, of_levels, 1.0)
    values = curves.reshape(-1, curves.shape[2])
    return cross_validation.least_squares_weights(values, shares.ravel(), of_levels.ravel())


def _loss(rows: fits.PITMapRows, k: int, g: np.ndarray) -> float:
    """The sum of the scores of a part, weighted."""
    inside = rows.chosen(rows.part == k)
    return float(inside.weights @ inside.scores(g))


def _conditional(
    rows: fits.PITMapRows, mixture: _Mixture, is_sure: bool
) -> tuple[Fitted | None, float]:
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
    if not cross_validation.is_clear(of_all - losses[best], 1.0 if is_sure else 0.0):
        return None, loss
    size, width, count = choices[best]
    line = conditional.ConditionalPITMap(
        probabilities=fits.increasing(mixture.line.probabilities),
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


def _held_out_losses(rows: fits.PITMapRows, scores: np.ndarray, without: np.ndarray) -> np.ndarray:
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
                g = fits.increasing((sums + count * without[k]) / (total + count))
                losses.append(inside.weights @ inside.scores(g))
        found.append(losses)
    return np.array(found).T
