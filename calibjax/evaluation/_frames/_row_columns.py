"""Columns that say what else is known of rows."""

import fnmatch
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._data import Between, Dependence, TypedColumn, different, typed_column
from calibjax.distributions import Normal
from calibjax.evaluation._dependence import cluster_numbers, in_units, read_times
from calibjax.evaluation._frames._columns import ColumnNames, Model
from calibjax.evaluation._frames._table import Table, as_floats, as_numbers, is_missing
from calibjax.evaluation._serial_dependence import Column


def targets_of(model: Model, censored: str | None) -> np.ndarray | Between:
    """The targets, of which some may only be known to be larger."""
    if model.events is not None:
        return Between(model.targets, np.where(model.events, model.targets, np.inf))
    if censored is None:
        return model.targets
    if not isinstance(model.predictions, Normal):
        option = model.table.option
        raise ValueError(f"{option('censored')} can be used only together with {option('mean')}.")
    is_censored = _of_rows(model, censored, model.table.truths(censored))
    return Between(model.targets, np.where(is_censored, np.inf, model.targets))


def weights_of(model: Model, name: str | None) -> np.ndarray | None:
    """How much each row counts."""
    if name is None:
        return None
    weights = _of_rows(model, name, model.table.numbers(name))
    model.table.check(name, weights >= 0, "a weight, which is not negative")
    return weights


def dependence_of(model: Model, cluster: str | None, time: str | None, horizon: Any) -> Dependence:
    """Which rows may depend on each other."""
    table = model.table
    option = table.option
    if cluster is not None and time is not None:
        raise ValueError(f"{option('clusters')} and {option('times')} cannot be used together.")
    if horizon is not None and time is None:
        raise ValueError(f"{option('horizon')} can be used only together with {option('times')}.")
    if cluster is not None:
        return Dependence(clusters=cluster_numbers(_typed(model, cluster)))
    if time is None:
        return Dependence()
    values, are_dates = read_times(_typed(model, time))
    table.check(time, np.isfinite(values), "a number, or a date such as 2026-03-31")
    return Dependence(times=values, horizon=in_units(horizon, are_dates))


def columns_of_rows(model: Model, used: ColumnNames) -> list[Column]:
    """The first other column of dates, and one of names that come again and again.

    Names are texts, or integers of a column whose name ends with id.  Such a column comes before
    others: rows of one question are nearer to each other than rows of one topic.  Of the days when
    forecasts were made and those that they are about, it is the latter.  Names that say the outcome
    or the prediction are none: rows of one outcome are alike whatever they depend on.
    """
    table = model.table
    values = [x for x in vars(used).values() if x is not None]
    patterns = [x for value in values for x in ([value] if isinstance(value, str) else [])]
    listed = {x for value in values if isinstance(value, (list, tuple)) for x in value}
    listed |= {model.target, *model.columns.names}
    found: dict[bool, Column] = {}
    for name in sorted(table.names, key=lambda name: not name.lower().endswith("id")):
        if name in listed or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        cells = table.cells(name)
        if cells.ndim > 1 or len(cells) != len(model.targets):
            continue
        is_id = cells.dtype.kind in "iu" and name.lower().endswith("id")
        is_text = cells.dtype == object and all(_is_name(x) for x in cells)
        if not (is_text or is_id or cells.dtype.kind == "M") or is_missing(cells).any():
            continue
        column = _typed(model, name)
        n_names = different(column.values).size
        if n_names < 2:
            continue
        times = read_times(column)
        is_time = times.are_dates and bool(np.isfinite(times.values).all())
        if is_time and is_time in found:
            found[is_time] = _of_leads(found[is_time], Column(name, is_time, times.values))
        elif is_time:
            found[is_time] = Column(name, is_time, times.values)
        elif is_time not in found and n_names <= len(cells) / 2:
            codes = cluster_numbers(column)
            if not _say_outcome(model, codes):
                found[is_time] = Column(name, is_time, codes)
    return list(found.values())


def _say_outcome(model: Model, codes: np.ndarray) -> bool:
    """Whether names follow from the target and what was predicted, as a copy or a band does."""
    names = model.columns.names
    keys = [model.targets, as_floats(model.table.cells(names[(len(names) - 1) // 2]))]
    if model.predictions.has_labels:
        probs = np.asarray(model.predictions.label_probabilities())
        keys.append(probs.shape[1] * probs.argmax(axis=1) + model.targets)
    return any(key.ndim == 1 and _follows(codes, key) for key in keys)


def _follows(codes: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether codes are a function of numbers; of numbers that hardly repeat, one of few steps."""
    key = np.unique(numbers, return_inverse=True)[1]
    n_keys, n_pairs = key.max() + 1, np.unique(np.stack([key, codes]), axis=1).shape[1]
    n_steps = np.count_nonzero(np.diff(codes[np.lexsort([codes, key])]))
    return bool(n_pairs == n_keys and (2 * n_keys <= len(key) or n_steps == codes.max()))


def _of_leads(first: Column, other: Column) -> Column:
    """The column of the days that forecasts are about, if the other has those when they were made.

    Then there are few leads among many days.  If not, it is the first column.
    """
    made, about = sorted((first, other), key=lambda column: float(np.mean(column.values)))
    leads = np.unique(about.values - made.values)
    days = np.unique(made.values)
    if first.horizon is not None or len(leads) > len(days) / 2:
        return first
    horizon = max(float(leads[-1]), 0.0) + float(np.diff(days).min())
    return about._replace(horizon=horizon)


def groups_of(model: Model, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns by their names, with None or NaN where a value is missing."""
    found = group_columns(model.table, names)
    return {name: _of_rows(model, name, cells) for name, cells in found.items()}


def group_columns(table: Table, names: Sequence[str], read: bool = True) -> dict[str, np.ndarray]:
    """The same of a table without targets; only if `read`, texts of numbers are numbers."""
    cells = {name: table.one_value(name) for name in names}
    return {name: as_numbers(x) for name, x in cells.items()} if read else cells


def _typed(model: Model, name: str) -> TypedColumn:
    model.table.check_present(name, "a value")
    cells = _of_rows(model, name, model.table.one_value(name))
    return typed_column(name, cells, len(cells))


def _is_name(value: object) -> bool:
    """A text or a date."""
    return isinstance(value, str) or hasattr(value, "isoformat")


def _of_rows(model: Model, name: str, values: np.ndarray) -> np.ndarray:
    """Values of which each row has one."""
    if len(values) != len(model.targets):
        raise ValueError(
            f"{model.table.source}, column {name}: expected one value for each of "
            f"{len(model.targets)} rows, got {len(values)}."
        )
    return values
