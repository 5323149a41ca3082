"""Weights, clusters, times and horizons as people have them."""

import datetime
import re
from typing import Any, NamedTuple

import numpy as np

from calibjax._base.struct import on_host
from calibjax._data import Dependence, TypedColumn, numbered, typed_column
from calibjax.frames._array_conversion import as_floats, as_numpy

_DAY = datetime.timedelta(days=1)
_EPOCH = datetime.datetime(1970, 1, 1)


class Times(NamedTuple):
    """Numbers ``[n]``, NaN where a value is none, and whether they count days since 1970."""

    values: np.ndarray
    are_dates: bool


def read_weights(weights: Any) -> np.ndarray | None:
    """Weights as numbers ``[n]``, which `as_data` judges."""
    if weights is None:
        return None
    found = _of_rows("weights", as_numpy("weights", weights))
    if found.dtype.kind == "U":
        raise TypeError("weights must be numbers, got strings.")
    return on_host(found.astype(float))


def read_dependence(clusters: Any, times: Any, horizon: Any) -> Dependence:
    """Names of clusters as integers, dates and times as days, and a horizon in their units.

    Raises:
        TypeError, ValueError: a value is missing, or is no number and no date.
    """
    if clusters is not None:
        clusters = cluster_numbers(_typed("clusters", clusters))
    if times is None:
        return Dependence(clusters, None, horizon)
    column = _typed("times", times)
    found = read_times(column)
    for row in np.flatnonzero(np.isnan(found.values))[:1]:
        raise ValueError(
            f"times must be numbers, or dates such as 2026-03-31; row {row} is {column.text(row)}."
        )
    return Dependence(clusters, found.values, in_units(horizon, found.are_dates))


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


def _of_rows(name: str, value: Any) -> Any:
    """One value for each row, where it was an array ``[n, 1]`` too."""
    if np.ndim(value) == 1:
        return value
    array = as_numpy(name, value)
    return array[:, 0] if array.shape[1:] == (1,) else array


def _typed(name: str, value: Any) -> TypedColumn:
    value = _of_rows(name, value)
    return typed_column(name, value, len(value), known=True)


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
