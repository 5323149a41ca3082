"""A map of predictions of numbers: what rows say of their PIT, the fit, what is known of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.check import check_choice
from calibjax._data import Between, CovariatesLike, Data, Distribution, NamedColumns, padded
from calibjax.distributions import Counts
from calibjax.recalibration._cross_validation import counted, parts_of
from calibjax.recalibration._fit_groups import FittedGroups, fit_pit_map_groups
from calibjax.recalibration._fit_pit_map import (
    ConditionalPITMap,
    fit_pit_map,
    median_and_spread,
    read_covariates,
)
from calibjax.recalibration._pit_map import (
    PITMap,
    are_complete,
    fit_conformal,
    known_levels,
    quantiles_at,
)
from calibjax.recalibration._pit_map_fits import (
    PIT_MAP_FITS,
    PITMapRows,
    at_levels,
    below_of_intervals,
    beyond_quantiles,
    distances_of,
    seen_cells,
)
from calibjax.recalibration._recalibrator import Recalibrator, recalibrator_of
from calibjax.scores import PITInterval, mass_below, pit_interval

OF_NUMBERS = ("auto", "nothing", *PIT_MAP_FITS, "conditional", "conformal")
# Parts of the rows that are left out in turn.
_N_PARTS = 10


def fit_numbers(
    data: Data,
    method: str,
    groups: NamedColumns | None,
    covariates: CovariatesLike | None,
    lower: float | None,
    in_order: bool,
) -> Recalibrator:
    """`fit_recalibrator` of checked data; times go to parts in their order."""
    predictions, targets = data.predictions, data.targets
    check_choice("method for numbers", method, OF_NUMBERS)
    is_conditional = method in ("auto", "conditional")
    if covariates is not None and not is_conditional:
        raise ValueError(
            f"covariates must be None for method {method!r}: 'conditional' and 'auto' know them."
        )
    kept, counts = counted(data)
    lower = _checked_bound(lower, data, kept)
    whole = padded(data)
    _check_complete(whole, kept)
    names, columns = read_covariates(covariates, data.n, kept)
    part = None
    if is_conditional or groups is not None:
        part = parts_of(data, kept, in_order, _N_PARTS)
    of_groups: FittedGroups | None = None
    losses: dict[str, float] = {}
    score = "log score, less that of the forecast as it is,"
    if method == "conformal":
        if data.weights is not None:
            raise ValueError("weights must be None for method 'conformal', which counts rows.")
        if groups is not None:
            raise ValueError("groups must be None for method 'conformal', which counts all rows.")
        if isinstance(targets, Between):
            raise ValueError("targets must be known for method 'conformal', got Between.")
        levels = np.asarray(known_levels(predictions))
        fitted = fit_conformal(data, levels, kept)
    else:
        n = int(kept.sum())
        # Neighbours in the order of the rows may be alike.
        by_rows = np.arange(n) * min(_N_PARTS, n) // n
        rows = _pit_map_rows(whole, method, kept, counts, by_rows if part is None else part)
        if rows.distances is not None:
            is_hidden = isinstance(targets, Between)
            score = "CRPS with hidden targets filled in" if is_hidden else "CRPS"
        if is_conditional:
            features = _known(median_and_spread(whole.predictions), kept)
            if columns is not None:
                features = np.concatenate([features, columns[kept]], axis=1)
            rows = rows._replace(features=features)
        method, fitted, losses = fit_pit_map(method, rows)
        if groups is not None:
            (line,) = fitted.steps
            g = _values(line, whole.predictions, _filled(columns, whole.n))
            g = _known(np.broadcast_to(g, (whole.n, rows.levels.size)), kept)
            g = np.maximum(g, np.finfo(np.float32).tiny)
            of_groups = fit_pit_map_groups(groups, kept, g, rows.below, rows.weights, part)
    return recalibrator_of(
        predictions,
        fitted,
        of_groups,
        method=method,
        losses=tuple(losses.items()),
        n_rows=int(kept.sum()),
        covariates=names,
        lower=lower,
        score=score,
    )


def _checked_bound(lower: float | None, data: Data, kept: np.ndarray) -> float | None:
    """The bound, if recalibrated predictions can keep it and no target that counts is below it."""
    if lower is None:
        return None
    if isinstance(lower, bool) or not (
        isinstance(lower, (int, float, np.number)) and np.isfinite(lower)
    ):
        raise ValueError(f"lower must be a finite number or None, got {lower!r}.")
    if not data.predictions.has_known_quantiles:
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
    too_few = kept & ~np.asarray(are_complete(data.predictions))[: kept.size]
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
    levels = np.asarray(known_levels(predictions))
    counts = counts * (counts.sum() / np.sum(counts**2))
    pit, seen = pit_interval(data), None
    low, high = (at_levels(levels, np.asarray(x, float)) for x in pit)
    if isinstance(data.targets, Between) or predictions.target_kind == "integer":
        low, high = _known(low, kept), _known(high, kept)
        below = below_of_intervals(method, levels, low, high, counts)
        seen = seen_cells(levels, low, high)
    else:
        dtype = pit.low.dtype
        ends = PITInterval(jnp.asarray(low, dtype), jnp.asarray(high, dtype))
        below = _known(_mass_below(ends, levels.astype(dtype)), kept)
    rows = PITMapRows(levels, below, counts, part, seen=seen)
    if not predictions.has_known_quantiles:
        return rows
    quantiles = _known(quantiles_at(predictions, levels), kept)
    rows = rows._replace(distances=distances_of(quantiles))
    if isinstance(data.targets, Between):
        return rows
    return rows._replace(beyond=beyond_quantiles(quantiles, _known(data.targets, kept)))


def _known(rows: Any, kept: np.ndarray) -> np.ndarray:
    """What is known of the rows that count, which others follow that padding added."""
    return np.asarray(rows, float)[: kept.size][kept]


def _filled(columns: np.ndarray | None, n: int) -> np.ndarray | None:
    """Columns of the rows that padding adds, too."""
    if columns is None:
        return None
    return np.concatenate([columns, np.zeros((n - len(columns), columns.shape[1]))])


@jax.jit
def _values(
    line: PITMap | ConditionalPITMap, predictions: Distribution, columns: jax.Array | None
) -> jax.Array:
    return line.values(predictions, columns)


_mass_below = jax.jit(mass_below)
