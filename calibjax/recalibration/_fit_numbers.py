"""Fits of maps to numbers: what data say of the unit interval, and checks of it."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice
from calibjax._base.compile import filled_up, quick_jit
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.covariates import CovariatesLike
from calibjax._data.data import Data
from calibjax._data.interval_censored import Between
from calibjax._data.named_columns import NamedColumns
from calibjax._data.padding import padded
from calibjax.distributions import Counts, Empirical
from calibjax.recalibration import _member_by_member as members
from calibjax.recalibration import _pit_map as pit_map
from calibjax.recalibration import _pit_map_fits as fits
from calibjax.recalibration._conditional_pit_map import (
    median_and_spread,
    read_covariates,
    with_filled_rows,
)
from calibjax.recalibration._conformal import fit_conformal
from calibjax.recalibration._cross_validation import parts_of
from calibjax.recalibration._fit_groups import fit_pit_map_groups
from calibjax.recalibration._fit_pit_map import fit_pit_map
from calibjax.recalibration._pit_map_fits import PITMapRows
from calibjax.recalibration._probability_maps import Chosen
from calibjax.recalibration._recalibrator import Recalibrator, recalibrator_of
from calibjax.scores import PITInterval, mass_below, pit_interval

OF_NUMBERS = ("auto", "nothing", *fits.PIT_MAP_FITS, "conditional", "conformal")
# The number of parts of the rows that are left out in turn.
_N_PARTS = 10
_LOG_SCORE = "log score, less that of the forecast as it is,"


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
            f"covariates must be None for method {method!r}: 'conditional' and 'auto' know them."
        )
    kept, counts = data.counted()
    n, lower = int(kept.sum()), _checked_bound(lower, data, kept)
    whole = padded(data)
    _check_complete(whole, kept)
    names, columns = read_covariates(covariates, data.n, kept)
    of_members = isinstance(predictions, Empirical) and (is_conditional or method == "shift_scale")
    needs_parts = is_conditional or of_members or groups is not None
    part = parts_of(data, kept, _N_PARTS) if needs_parts else None
    fit = {"n_rows": n, "covariates": names, "lower": lower, "score": _LOG_SCORE}
    if method == "conformal":
        _check_conformal(data, groups)
        levels = np.asarray(pit_map.known_levels(predictions))
        chosen: Chosen = method, fit_conformal(data, levels, kept), {}
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
        features = _known(median_and_spread(whole.predictions), kept)
        if columns is not None:
            features = np.concatenate([features, columns[kept]], axis=1)
        rows = rows._replace(features=features)
    chosen = fit_pit_map(method, rows, of_members)
    if of_members:
        chosen = members.one_after_another(first, chosen, groups is not None)
    name, fitted, losses = chosen
    fitted, of_groups = fitted._replace(steps=with_filled_rows(fitted.steps, data.n)), None
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
        raise ValueError("weights must be None for method 'conformal', which counts rows.")
    if groups is not None:
        raise ValueError("groups must be None for method 'conformal', which counts all rows.")
    if isinstance(data.targets, Between):
        raise ValueError("targets must be known for method 'conformal', got Between.")


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
            "lower must be None for predictions that are no quantiles or samples, got "
            f"{type(data.predictions).__name__} predictions."
        )
    targets = data.targets
    ends = np.asarray(targets.high if isinstance(targets, Between) else targets)
    below = kept & (ends < lower)
    if below.any():
        row = int(np.argmax(below))
        raise ValueError(
            f"lower must be a number that no target is below, got {lower:g}, and {ends[row]:g} in "
            f"row {row}."
        )
    return float(lower)


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
) -> PITMapRows:
    """What padded data say of the unit interval in rows that count."""
    predictions = data.predictions
    levels = np.asarray(pit_map.known_levels(predictions))
    counts = counts * (counts.sum() / np.sum(counts**2))
    pit, seen = pit_interval(data), None
    low, high = (fits.at_levels(levels, np.asarray(x, float)) for x in pit)
    if isinstance(data.targets, Between) or predictions.target_kind == "integer":
        low, high = _known(low, kept), _known(high, kept)
        below = fits.below_of_intervals(method, levels, low, high, counts)
        seen = fits.seen_cells(levels, low, high)
    else:
        dtype = pit.low.dtype
        ends = PITInterval(jnp.asarray(low, dtype), jnp.asarray(high, dtype))
        below = _known(_mass_below(ends, levels.astype(dtype)), kept)
    rows = PITMapRows(levels, below, counts, part, seen=seen)
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
