"""Columns that say what else is known of rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._data import Between, Dependence, TypedColumn, typed_column
from calibjax.distributions import Normal
from calibjax.frames._columns import Model
from calibjax.frames._dependence import cluster_numbers, in_units, read_times
from calibjax.frames._table import Table, as_numbers


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
        return Dependence(clusters=cluster_numbers(typed(model, cluster)))
    if time is None:
        return Dependence()
    values, are_dates = read_times(typed(model, time))
    table.check(time, np.isfinite(values), "a number, or a date such as 2026-03-31")
    return Dependence(times=values, horizon=in_units(horizon, are_dates))


def groups_of(model: Model, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns by their names, with None or NaN where a value is missing."""
    found = group_columns(model.table, names)
    return {name: _of_rows(model, name, cells) for name, cells in found.items()}


def group_columns(table: Table, names: Sequence[str], read: bool = True) -> dict[str, np.ndarray]:
    """The same of a table without targets; only if `read`, texts of numbers are numbers."""
    cells = {name: table.one_value(name) for name in names}
    return {name: as_numbers(x) for name, x in cells.items()} if read else cells


def typed(model: Model, name: str) -> TypedColumn:
    model.table.check_present(name, "a value")
    cells = _of_rows(model, name, model.table.one_value(name))
    return typed_column(name, cells, len(cells))


def _of_rows(model: Model, name: str, values: np.ndarray) -> np.ndarray:
    """Values of which each row has one."""
    if len(values) != len(model.targets):
        raise ValueError(
            f"{model.table.source}, column {name}: expected one value for each of "
            f"{len(model.targets)} rows, got {len(values)}."
        )
    return values
