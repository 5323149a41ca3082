"""Fits of maps of numbers: shifts and scales, and then maps of the unit interval."""

from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._base.compile import filled_up, quick_jit
from calibjax._base.struct import with_fields
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.data import Data
from calibjax._data.interval_censored import IntervalCensored
from calibjax._data.padding import padded
from calibjax._data.row_columns import CovariatesLike
from calibjax._data.typed_column import NamedColumns
from calibjax._numbers.validity import are_whole
from calibjax.distributions import Counts, Empirical, SurvivalCurve
from calibjax.recalibration import _conditional_pit_map as conditional
from calibjax.recalibration import _cross_validation as cross_validation
from calibjax.recalibration import _pit_map as pit_map
from calibjax.recalibration import _pit_map_fits as fits
from calibjax.recalibration._choose_pit_map import Found, fit_pit_map
from calibjax.recalibration._fit_groups import fit_pit_map_groups
from calibjax.recalibration._fit_scales import fit_scales, rows_of
from calibjax.recalibration._member_by_member import MemberRows
from calibjax.recalibration._probability_maps import Chosen, Fitted
from calibjax.recalibration._recalibrator import Recalibrator, recalibrator_of
from calibjax.recalibration._shift_scale import NormalScores
from calibjax.scores.pit_intervals import pit_interval

OF_NUMBERS = ("auto", "identity", *fits.PIT_MAP_FITS, "conditional", "conformal")
# Number of parts that are held out in turn.
_N_PARTS = 10


def fit_numbers(
    data: Data,
    method: str,
    groups: NamedColumns | None,
    covariates: CovariatesLike | None,
    lower: float | None,
) -> Recalibrator:
    """`fit_recalibrator` of checked data."""
    predictions = data.predictions
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
    form = lower, method != "conformal" and _is_whole(data, kept)
    fit: dict[str, Any] = {"n_rows": n, "covariates": names, "lower": lower, "is_whole": form[1]}
    if method == "conformal":
        _check_conformal(data, groups)
        levels = np.asarray(pit_map.known_levels(predictions))
        conformal: Chosen = method, pit_map.fit_conformal(data, levels, kept), {}
        return recalibrator_of(predictions, conformal, None, **fit)
    # Counts, survival curves and censored targets have maps of the unit interval only.
    has_scale = not (data.is_censored or isinstance(predictions, (Counts, SurvivalCurve)))
    needs_parts = is_conditional or groups is not None or (has_scale and method == "shift_scale")
    part = cross_validation.parts_of(data, kept, _N_PARTS) if needs_parts else None
    part = cross_validation.random_parts(n, _N_PARTS) if part is None else part
    scored = rows_of(whole, kept, (counts, part), form) if has_scale else None
    scales, is_ensemble = None, isinstance(predictions, Empirical)
    if scored is not None and needs_parts:
        units = None if groups is None else cross_validation.units_of(data, kept)
        scales = fit_scales(scored, method, is_ensemble, groups, kept, units)
        first: Chosen = method, Fitted(scales.steps, True, ""), {}
        after = recalibrator_of(predictions, first, scales.of_groups, **fit)
        whole = padded(data.replace(predictions=after(predictions, groups, covariates)))
        scored = scales.rows
    found = Found("identity", Fitted((), True, ""), {}, np.zeros(n), np.zeros(n))
    of_groups = None
    if scored is None or method not in ("identity", "shift_scale"):
        rows = _pit_map_rows(whole, method, kept, counts, part, scored)
        # It makes spreads of members similar, which lowers the CRPS and makes ranks less uniform.
        if is_conditional and not (is_ensemble and method == "auto" and columns is None):
            features = _known(conditional.median_and_spread(whole.predictions), kept)
            if columns is not None:
                features = np.concatenate([features, columns[kept]], axis=1)
            rows = rows._replace(features=features)
        found = fit_pit_map(method, rows, has_scale)
        steps = conditional.with_filled_rows(found.fitted.steps, data.n)
        found = found._replace(fitted=found.fitted._replace(steps=steps))
        if groups is not None and scales is None:
            filled = None if columns is None else filled_up(columns)[: whole.n]
            g = _values(steps[-1], whole.predictions, filled)
            g = _known(np.broadcast_to(g, (whole.n, rows.levels.size)), kept)
            g = np.maximum(g, np.finfo(np.float32).tiny)
            of_groups = fit_pit_map_groups(groups, kept, g, rows)
    if scales is not None:
        found, of_groups = scales.then(found), scales.of_groups
    fit["score"] = fits.LOG_SCORE if scored is None else scored.name_of_score()
    if found.losses and found.fitted.description:
        fit["change"] = cross_validation.mean_change(found.before, found.after, counts, part)
    recalibrator = recalibrator_of(predictions, found[:3], of_groups, **fit)
    if is_ensemble and lower is not None and found.name != "identity":
        members = recalibrator(predictions, groups, covariates)
        threshold = _threshold(members, np.asarray(data.targets)[kept], lower, kept, counts)
        recalibrator = with_fields(recalibrator, fit=recalibrator.fit._replace(threshold=threshold))
    return recalibrator


def _threshold(
    members: Empirical, targets: np.ndarray, lower: float, kept: np.ndarray, counts: np.ndarray
) -> float | None:
    """The number up to which members become the bound, to be there as often as targets.

    None if they already are, or if the CRPS increases by more than a standard error.
    """
    rows = MemberRows.of(members, kept, targets, counts, np.arange(counts.size))
    values = rows.mean[:, None] + rows.deviations
    weights = (counts[:, None] * rows.shares).ravel()
    order = np.argsort(values, axis=None)
    sums = np.cumsum(weights[order])
    share = float(counts @ (targets <= lower)) / counts.sum()
    known = np.searchsorted(sums, share * sums[-1])
    threshold = float(np.float32(values.ravel()[order][min(known, order.size - 1)]))
    if threshold <= lower:
        return None
    loss = rows.scores_of(np.where(values <= threshold, lower, values)) - rows.scores(None)
    return None if cross_validation.is_clear(loss * counts) else threshold


def _check_conformal(data: Data, groups: NamedColumns | None) -> None:
    """Raises an error for weights, groups, censored targets and survival curves."""
    if data.weights is not None:
        raise ValueError("method='conformal' does not support weights.")
    if groups is not None:
        raise ValueError("method='conformal' does not support groups.")
    if data.is_censored:
        raise ValueError("targets must be known for method 'conformal', got IntervalCensored.")
    if isinstance(data.predictions, SurvivalCurve):
        raise TypeError("predictions must have quantiles for 'conformal', got SurvivalCurve.")


def _checked_bound(lower: float | None, data: Data, kept: np.ndarray) -> float | None:
    """The bound; a ValueError if predictions cannot keep it or a target that counts is below."""
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
    ends = np.asarray(targets.high if isinstance(targets, IntervalCensored) else targets)
    below = kept & (ends < lower)
    if below.any():
        row = int(np.argmax(below))
        raise ValueError(
            f"lower must not exceed any target; got {lower:g}, target {ends[row]:g} in row {row}."
        )
    return float(lower)


def _is_whole(data: Data, kept: np.ndarray) -> bool:
    """Whether all targets, quantiles and samples of the kept rows are whole numbers."""
    if data.is_censored or not isinstance(data.predictions, KnownQuantiles):
        return False
    values = np.asarray(jax.tree.leaves(data.predictions)[0])[kept]
    # Members that are missing may hold anything.
    return are_whole(values[np.isfinite(values)], np.asarray(data.targets)[kept])


def _check_complete(data: Data, kept: np.ndarray) -> None:
    """Raises a ValueError if counts above max_count are probable in a kept row of padded data."""
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
    data: Data,
    method: str,
    kept: np.ndarray,
    counts: np.ndarray,
    part: np.ndarray,
    scored: MemberRows | NormalScores | None,
) -> fits.PITMapRows:
    """The rows of padded data that fit maps of the unit interval.

    `scored` are these rows as `rows_of` returns them, or None for intervals of U.
    """
    from scipy.special import ndtr

    predictions = data.predictions
    levels = np.asarray(pit_map.known_levels(predictions))
    counts = counts * (counts.sum() / np.sum(counts**2))
    if isinstance(scored, NormalScores):
        levels = np.asarray(fits.WITH_TAILS)
        below = (fits.at_levels(levels, ndtr(scored.z))[:, None] <= levels).astype(float)
        return fits.PITMapRows(levels, below, counts, part, z=scored.z)
    low, high = (fits.at_levels(levels, np.asarray(x, float)) for x in pit_interval(data))
    seen = None
    if scored is None:
        low, high = _known(low, kept), _known(high, kept)
        below = fits.below_of_intervals(method, levels, low, high, counts)
        seen = fits.seen_cells(levels, low, high)
    else:
        low, high, is_known = low[:, None], high[:, None], (low == high)[:, None]
        share = (levels - low) / np.where(is_known, 1.0, high - low)
        below = _known(np.where(is_known, low <= levels, np.clip(share, 0.0, 1.0)), kept)
    rows = fits.PITMapRows(levels, below, counts, part, seen=seen)
    if scored is None:
        return rows
    levels_known, values = pit_map.known_quantiles(predictions)
    z = np.asarray(levels_known, float) if levels_known.ndim == 1 else _known(levels_known, kept)
    return rows._replace(known=fits.KnownValues(z, _known(values, kept), scored))


def _known(rows: ArrayLike, kept: np.ndarray) -> np.ndarray:
    """The rows that count, without those of padding, as float64."""
    return np.asarray(rows, float)[: kept.size][kept]


# Values of a map at its levels, from predictions and covariates.
_values = quick_jit(lambda line, *of_rows: line.values(*of_rows), light=True)
