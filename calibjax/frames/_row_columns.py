"""What is known of rows beside predictions: weights, clusters, times and groups."""

import datetime
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._data.column_options import Horizon
from calibjax._data.data import RowOptions
from calibjax._data.typed_column import TypedColumn, numbered
from calibjax.frames._array_conversion import as_floats
from calibjax.frames._table import Table, table_of_arrays

_DAY = datetime.timedelta(days=1)
_EPOCH = datetime.datetime(1970, 1, 1)


def row_options(
    table: Table,
    weights: Sequence[str] = (),
    clusters: str | None = None,
    times: str | None = None,
    horizon: Horizon = None,
) -> RowOptions:
    """How much each row counts, and which rows may depend on each other, as columns say it.

    Names of clusters become integers, dates become days, and the horizon has their units.
    """
    option, found = table.option, RowOptions()
    for name in weights:
        least = table.array(name).reshape(len(table), -1).min(axis=1)
        table.check(name, least >= 0, "a weight, which is not negative")
    if weights:
        numbers = np.column_stack([table.array(name) for name in weights])
        found["weights"] = numbers[:, 0] if numbers.shape[1] == 1 else numbers
    if clusters is not None and times is not None:
        raise ValueError(f"{option('clusters')} and {option('times')} cannot be used together.")
    if horizon is not None and times is None:
        raise ValueError(f"{option('horizon')} can be used only together with {option('times')}.")
    if clusters is not None:
        found["clusters"] = cluster_numbers(table.typed(clusters))
    if times is not None:
        values, are_dates = read_times(table.typed(times))
        table.check(times, np.isfinite(values), "a number, or a date such as 2026-03-31")
        found |= {"times": values, "horizon": in_units(horizon, are_dates)}
    return found


def read_rows(horizon: Horizon = None, **arrays: Any) -> RowOptions:
    """`row_options` of arrays ``[n]`` of many types."""
    given = {name: x for name, x in arrays.items() if x is not None}
    if not given:
        return RowOptions(horizon=in_units(horizon, True))
    names: dict[str, Any] = {name: name for name in given}
    names |= {"weights": ["weights"]} if "weights" in given else {}
    return row_options(table_of_arrays(**given), **names, horizon=horizon)


def groups_of(table: Table, names: Sequence[str], read: bool = True) -> dict[str, np.ndarray]:
    """Columns with None or NaN where a value is missing.

    If `read`, numbers in a text file are numbers; see `Table.untyped`.
    """
    found = {name: table.one_value(name) for name in names}
    for name, cells in found.items():
        if cells.dtype == object:
            is_empty = np.array([isinstance(x, str) and not x.strip() for x in cells], bool)
            found[name] = np.where(is_empty, np.array(None), cells)
    return {name: table.by_type(name, x) for name, x in found.items()} if read else found


def cluster_numbers(names: TypedColumn) -> np.ndarray:
    """The number of the cluster of each row, in the order of their names."""
    return numbered(names.values)[1].astype(np.int32)


def read_times(column: TypedColumn) -> tuple[np.ndarray, bool]:
    """Numbers ``[n]``, NaN where a value is none, and whether they count days since 1970.

    Texts are all dates, or all numbers.
    """
    values = column.values
    if values.dtype.kind == "M":
        return (values - np.datetime64(0, "us")) / np.timedelta64(1, "D"), True
    if values.dtype.kind != "O":
        return values.astype(np.float64), False
    texts, rows = numbered(values)
    dates = np.array([_days(text) for text in texts.tolist()])[rows], True
    numbers = as_floats(texts)[rows], False
    return max(dates, numbers, key=lambda found: np.isfinite(found[0]).sum())


def as_iso(text: str) -> str:
    """A date such as 31.3.2026 or 2026/3/31 as 2026-03-31, a time with an offset as that of UTC.

    With points the day is always first.
    """
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})", text.strip())
    if found is not None:
        return "{2}-{1:0>2}-{0:0>2}".format(*found.groups())
    found = re.match(r"\s*([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})(?![0-9])", text)
    if found is not None:
        text = "{}-{:0>2}-{:0>2}".format(*found.groups()) + text[found.end() :]
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


def in_units(horizon: Horizon, are_dates: bool) -> Any:
    """A horizon as a number of days, if it is a difference of times."""
    if isinstance(horizon, np.timedelta64):
        horizon = horizon.astype("timedelta64[us]").item()
    if not isinstance(horizon, datetime.timedelta):
        return horizon
    if not are_dates:
        raise TypeError(f"horizon must be a number, as times are, got {horizon!r}.")
    return horizon / _DAY
