"""What is known of rows beside predictions: weights, clusters, times and groups."""

import datetime
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibjax._data import Between, Dependence, TypedColumn, numbered
from calibjax.distributions import Normal
from calibjax.frames._array_conversion import as_floats
from calibjax.frames._columns import Model
from calibjax.frames._read_table import table_of_arrays
from calibjax.frames._table import Table, as_numbers

_DAY = datetime.timedelta(days=1)
_EPOCH = datetime.datetime(1970, 1, 1)


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


def read_weights(weights: Any) -> np.ndarray | None:
    """Weights ``[n]`` as people have them."""
    return None if weights is None else weights_of(table_of_arrays(weights=weights), "weights")


def read_dependence(clusters: Any, times: Any, horizon: Any) -> Dependence:
    """Names of clusters as integers, dates and times as days, and a horizon in their units."""
    given = {"clusters": clusters, "times": times}
    given = {name: x for name, x in given.items() if x is not None}
    if not given:
        return Dependence(None, None, horizon)
    cluster, time = (name if name in given else None for name in ("clusters", "times"))
    return dependence_of(table_of_arrays(**given), cluster, time, horizon)


class Times(NamedTuple):
    """Numbers ``[n]``, NaN where a value is none, and whether they count days since 1970."""

    values: np.ndarray
    are_dates: bool


def cluster_numbers(names: TypedColumn) -> np.ndarray:
    """The number of the cluster of each row, in the order of their names."""
    return numbered(names.values)[1].astype(np.int32)


def read_times(column: TypedColumn) -> Times:
    """Numbers, dates, or texts that are all dates or all numbers."""
    values = column.values
    if values.dtype.kind == "M":
        return Times((values - np.datetime64(0, "us")) / np.timedelta64(1, "D"), True)
    if values.dtype.kind != "O":
        return Times(values.astype(np.float64), False)
    texts, rows = numbered(values)
    dates = Times(np.array([_days(text) for text in texts.tolist()])[rows], True)
    numbers = Times(as_floats(texts)[rows], False)
    return max(dates, numbers, key=lambda found: np.isfinite(found.values).sum())


def as_iso(text: str) -> str:
    """A date such as 31.03.2026 as 2026-03-31, and a time with an offset as that of UTC.

    With points the day is always first.
    """
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})", text.strip())
    if found is not None:
        return "{2}-{1:0>2}-{0:0>2}".format(*found.groups())
    try:
        time = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return text if time.tzinfo is None else str(time.astimezone(datetime.UTC))[: -len("+00:00")]


def _days(text: str) -> float:
    """Days since 1970 of a date or a time in the forms of ISO 8601; NaN of other texts."""
    try:
        return (datetime.datetime.fromisoformat(as_iso(text).strip()) - _EPOCH) / _DAY
    except ValueError:
        return np.nan


def in_units(horizon: Any, are_dates: bool) -> Any:
    """A horizon as a number of days, if it is a difference of times."""
    if isinstance(horizon, np.timedelta64):
        horizon = horizon.astype("timedelta64[us]").item()
    if not isinstance(horizon, datetime.timedelta):
        return horizon
    if not are_dates:
        raise TypeError(f"horizon must be a number, as times are, got {horizon!r}.")
    return horizon / _DAY
