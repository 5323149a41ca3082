"""Columns that say what else is known of rows."""

import dataclasses
import fnmatch

import numpy as np
import polars as pl

from calibjax._between import Between
from calibjax._rows import Dependence
from calibjax.cli._columns import Columns, Model
from calibjax.cli._terminal import BadInput
from calibjax.distributions import Normal
from calibjax.evaluation import Column, cluster_numbers, read_times


def censored_targets(model: Model, name: str) -> Between:
    """The targets, of which some are only known to be larger."""
    if not isinstance(model.predictions, Normal):
        raise BadInput("--censored can be used only together with --mean.")
    is_censored = _of_rows(model, name, model.table.truths(name))
    return Between(model.targets, np.where(is_censored, np.inf, model.targets))


def weights_of(model: Model, name: str) -> np.ndarray:
    """How much each row counts."""
    weights = _of_rows(model, name, model.table.numbers(name))
    model.table.check(name, weights >= 0, "a weight, which is not negative")
    return weights


def dependence_of(
    model: Model, cluster: str | None, time: str | None, horizon: float | None
) -> Dependence:
    """Which rows may depend on each other."""
    if cluster is not None and time is not None:
        raise BadInput("--cluster and --time cannot be used together.")
    if horizon is not None and time is None:
        raise BadInput("--horizon can be used only together with --time.")
    if cluster is not None:
        return Dependence(clusters=cluster_numbers(_names(model, cluster)))
    if time is None:
        return Dependence()
    column = model.table.column(time)
    names = column.to_numpy() if column.dtype.is_temporal() else _names(model, time)
    values = read_times(names).values
    words = "a number, or a date such as 2026-03-31"
    model.table.check(time, np.isfinite(_of_rows(model, time, values)), words)
    return Dependence(times=values, horizon=horizon)


def columns_of_rows(model: Model, used: Columns) -> list[Column]:
    """The first other column of dates, and the first one of names that come again and again.

    Names are texts, or integers of a column whose name ends with id.
    """
    patterns = [x for x in dataclasses.astuple(used) if isinstance(x, str)]
    found: dict[bool, Column] = {}
    for name, column in model.table.columns.items():
        is_id = column.dtype.is_integer() and name.lower().endswith("id")
        is_text = column.dtype == pl.String or column.dtype.is_temporal()
        is_used = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        if is_used or not (is_text or is_id) or len(column) != len(model.targets):
            continue
        if column.null_count() or column.n_unique() < 2:
            continue
        texts = column.cast(pl.String).to_numpy().astype(str)
        times = read_times(texts)
        is_time = times.are_dates and bool(np.isfinite(times.values).all())
        if is_time or column.n_unique() <= len(column) / 2:
            values = times.values if is_time else cluster_numbers(texts)
            found.setdefault(is_time, Column(name, is_time, values))
    return list(found.values())


def groups_of(model: Model, names: str) -> dict[str, np.ndarray]:
    """The columns of a list such as "region,lead", with None or NaN where a value is missing."""
    groups: dict[str, np.ndarray] = {}
    for name in filter(None, map(str.strip, names.split(","))):
        column = model.table.column(name)
        if column.dtype.is_nested():
            raise BadInput(f"{model.table.path}, column {name}: expected one value in each row.")
        if column.dtype == pl.String:  # as all columns of a CSV file
            numbers = column.cast(pl.Float64, strict=False)
            column = numbers if numbers.null_count() == column.null_count() else column
        is_text = column.dtype == pl.String
        values = np.array(column.to_list(), dtype=object) if is_text else column.to_numpy()
        groups[name] = _of_rows(model, name, values)
    return groups


def _names(model: Model, name: str) -> np.ndarray:
    """A column as text, without missing values."""
    column = model.table.column(name)
    if column.dtype.is_nested():
        raise BadInput(f"{model.table.path}, column {name}: expected one value in each row.")
    model.table.check(name, column.is_not_null().to_numpy(), "a value")
    return _of_rows(model, name, np.array(column.cast(pl.String).to_list(), dtype=str))


def _of_rows(model: Model, name: str, values: np.ndarray) -> np.ndarray:
    """Values of which each row has one."""
    if len(values) != len(model.targets):
        raise BadInput(
            f"{model.table.path}, column {name}: expected one value for each of "
            f"{len(model.targets)} rows, got {len(values)}."
        )
    return values
