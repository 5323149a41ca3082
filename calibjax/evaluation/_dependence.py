"""Weights, clusters, times and horizons as people have them."""

import datetime
import re
from typing import Any, NamedTuple

import numpy as np

from calibjax._rows import Dependence
from calibjax._struct import on_host
from calibjax.evaluation._arrays import as_numpy

#: What is assumed if people say nothing.
INDEPENDENT = Dependence()
# With fewer, tests of calibrated models at the level 0.05 reject next to none of them: they cannot
# see a wrong model either.
_FEW_CLUSTERS, _FEW_HORIZONS = 8, 10
_DAY = datetime.timedelta(days=1)
_EPOCH = datetime.datetime(1970, 1, 1)


class Times(NamedTuple):
    """Numbers ``[n]``, NaN where a value is none, and whether they count days since 1970."""

    values: np.ndarray
    are_dates: bool


def read_weights(weights: Any) -> np.ndarray | None:
    """Weights as numbers ``[n]``, which `check_data` judges."""
    if weights is None:
        return None
    found = _column("weights", as_numpy("weights", weights))
    if found.dtype.kind == "U":
        raise TypeError("weights must be numbers, got strings.")
    return on_host(found.astype(float))


def read_dependence(clusters: Any, times: Any, horizon: Any) -> Dependence:
    """Names of clusters as integers, dates and times as days, and a horizon in their units.

    Raises:
        TypeError, ValueError: a value is missing, or is no number and no date.
    """
    if clusters is not None:
        clusters = cluster_numbers(_column("clusters", _with_dates("clusters", clusters)))
    if times is None:
        return Dependence(clusters, None, horizon)
    column = _column("times", _with_dates("times", times))
    found = read_times(column)
    if np.isnan(found.values).any():
        row = int(np.argmax(np.isnan(found.values)))
        raise ValueError(
            f"times must be numbers, or dates such as 2026-03-31; row {row} is {column[row]}."
        )
    return Dependence(clusters, found.values, in_units(horizon, found.are_dates))


def cluster_numbers(names: np.ndarray) -> np.ndarray:
    """The number of the cluster of each row, in the order of their names."""
    return np.unique(names, return_inverse=True)[1].astype(np.int32)


def read_times(column: np.ndarray) -> Times:
    """Numbers, dates, or texts that are all dates or all numbers."""
    if column.dtype.kind == "M":
        days = column.astype("datetime64[us]").astype(np.int64) / (_DAY / _DAY.resolution)
        return Times(np.where(np.isnat(column), np.nan, days), True)
    if column.dtype.kind != "U":
        return Times(column.astype(np.float64), False)
    dates = Times(np.array([_days(text) for text in column.tolist()]), True)
    numbers = Times(np.array([_number(text) for text in column.tolist()]), False)
    return max(dates, numbers, key=lambda found: np.isfinite(found.values).sum())


def rows_in_words(dependence: Dependence) -> str | None:
    """How many clusters or times there are, such as "60 clusters"; None if rows are independent."""
    clusters, times, horizon = dependence
    if clusters is not None:
        return f"{np.unique(np.asarray(clusters)).size} clusters"
    if times is None:
        return None
    within = "" if horizon is None else f", horizon {horizon:g}"
    return f"{np.unique(np.asarray(times)).size} times{within}"


def remarks_on_rows(weights: np.ndarray | None, dependence: Dependence) -> list[str]:
    """What of an evaluation does not know about weights, and about dependence."""
    found, units = [], rows_in_words(dependence)
    if weights is not None:
        found.append(
            "Weights: the p-value, the numbers and the curves know them. Maps, and where it is "
            "worst, count every row once; temperatures, recalibrations and rows that contribute "
            "most are left out."
        )
    if units is not None:
        found.append(
            f"Dependent rows, {units}: the p-value, the intervals above, and the bands of "
            "reliability, PIT and coverage allow for it. The CORP curve, maps, and where it is "
            "worst, assume independent rows; recalibrations are left out."
        )
    return found + remarks_on_few_units(dependence)


def remarks_on_few_units(dependence: Dependence) -> list[str]:
    """Whether there are too few clusters or horizons to learn much from."""
    clusters, times, horizon = dependence
    if clusters is not None:
        is_few = np.unique(np.asarray(clusters)).size < _FEW_CLUSTERS
        words = f"clusters: with fewer than {_FEW_CLUSTERS},"
    elif times is not None and horizon is not None:
        is_few = np.ptp(np.asarray(times)) < _FEW_HORIZONS * horizon
        words = f"horizons: where times span fewer than {_FEW_HORIZONS},"
    else:
        return []
    return [f"Few {words} tests find only large errors, and intervals are wide."] if is_few else []


def _column(name: str, found: np.ndarray) -> np.ndarray:
    """One value for each row."""
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise ValueError(f"{name} must have one value for each row, got shape {list(found.shape)}.")
    if found.dtype.kind == "f" and np.isnan(found).any():
        row = int(np.argmax(np.isnan(found)))
        raise ValueError(f"{name} must not have missing values; row {row} is nan.")
    return found


def _with_dates(name: str, value: Any) -> np.ndarray:
    """What `as_numpy` reads, and dates."""
    array = np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    if array.dtype.kind == "M":
        if np.isnat(array).any():
            row = int(np.argmax(np.isnat(array.ravel())))
            raise ValueError(f"{name} must not have missing values; row {row} is NaT.")
        return array
    if array.dtype.kind == "O" and any(isinstance(x, datetime.date) for x in array.flat):
        value = [x.isoformat() if isinstance(x, datetime.date) else x for x in array.flat]
    return as_numpy(name, value)


def with_year_first(text: str) -> str:
    """A date such as 31.03.2026 as 2026-03-31; with points the day is always first."""
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})", text.strip())
    return text if found is None else "{2}-{1:0>2}-{0:0>2}".format(*found.groups())


def _days(text: str) -> float:
    """Days since 1970 of a date or a time in the forms of ISO 8601; NaN of other texts."""
    try:
        date = datetime.datetime.fromisoformat(with_year_first(text).strip())
    except ValueError:
        return np.nan
    if date.tzinfo is not None:
        date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    return (date - _EPOCH) / _DAY


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return np.nan
    return number if np.isfinite(number) else np.nan


def in_units(horizon: Any, are_dates: bool) -> Any:
    """A horizon as a number of days, if it is a difference of times."""
    if isinstance(horizon, np.timedelta64):
        horizon = horizon.astype("timedelta64[us]").item()
    if not isinstance(horizon, datetime.timedelta):
        return horizon
    if not are_dates:
        raise TypeError(f"horizon must be a number, as times are, got {horizon!r}.")
    return horizon / _DAY
