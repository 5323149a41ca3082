"""Columns that say what else is known of rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._data import Between, Dependence
from calibjax.distributions import Normal
from calibjax.frames._columns import Model
from calibjax.frames._dependence import cluster_numbers, in_units, read_times
from calibjax.frames._table import Table, as_numbers


def targets_of(model: Model, censored: str | None) -> np.ndarray | Between:
    """The targets, of which some may only be known to be larger."""
    if censored is None:
        return model.targets
    table = model.table
    if not isinstance(model.predictions, Normal):
        option = table.option
        raise ValueError(f"{option('censored')} can be used only together with {option('mean')}.")
    return Between(model.targets, np.where(table.truths(censored), np.inf, model.targets))


def weights_of(table: Table, name: str | None) -> np.ndarray | None:
    """How much each row counts."""
    if name is None:
        return None
    weights = table.numbers(name)
    table.check(name, weights >= 0, "a weight, which is not negative")
    return weights


def dependence_of(table: Table, cluster: str | None, time: str | None, horizon: Any) -> Dependence:
    """Which rows may depend on each other."""
    option = table.option
    if cluster is not None and time is not None:
        raise ValueError(f"{option('clusters')} and {option('times')} cannot be used together.")
    if horizon is not None and time is None:
        raise ValueError(f"{option('horizon')} can be used only together with {option('times')}.")
    if cluster is not None:
        return Dependence(clusters=cluster_numbers(table.typed(cluster)))
    if time is None:
        return Dependence()
    values, are_dates = read_times(table.typed(time))
    table.check(time, np.isfinite(values), "a number, or a date such as 2026-03-31")
    return Dependence(times=values, horizon=in_units(horizon, are_dates))


def groups_of(table: Table, names: Sequence[str], read: bool = True) -> dict[str, np.ndarray]:
    """Columns with None or NaN where a value is missing; if `read`, texts of numbers are these."""
    found = {name: table.one_value(name) for name in names}
    for name, cells in found.items():
        if cells.dtype == object:
            is_empty = np.array([isinstance(x, str) and not x.strip() for x in cells], bool)
            found[name] = np.where(is_empty, np.array(None), cells)
    return {name: as_numbers(x) for name, x in found.items()} if read else found
