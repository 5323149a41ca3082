"""Forecasts as a table with a row for each task and a column for each level, bin or category."""

from pathlib import Path

import numpy as np
import polars as pl

from calibjax._base.text import listed
from calibjax.hub._tables import FILE, OUTPUT, task_in_words

# Levels that differ by less are one level, such as 0.3 and 0.1 + 0.2.
_DECIMALS_OF_LEVELS = 9
# The number of names that are shown.
_SHOWN = 4
# What a column of a type of output is.
_COLUMN = {"quantile": "level", "sample": "sample", "cdf": "threshold", "pmf": "category"}


def tasks_of(frame: pl.DataFrame) -> list[str]:
    """The columns that say what a forecast is about."""
    return [name for name in frame.columns if name not in (*OUTPUT, FILE)]


def wide_table(path: Path, frame: pl.DataFrame, kind: str) -> pl.DataFrame:
    """The columns of the tasks, the file of each, and its values; null where one is missing.

    Raises:
        ValueError: a value or a level is no number, or a task has two values.
    """
    tasks = tasks_of(frame)
    text = frame["value"]
    values = text.cast(pl.Float64, strict=False).fill_nan(None)
    is_missing = text.is_null() | (text.str.to_lowercase() == "nan").fill_null(False)
    is_bad = ~is_missing & (values.is_null() | values.is_infinite().fill_null(False))
    if is_bad.any():
        bad = frame.filter(is_bad)
        raise ValueError(
            f"{bad[FILE][0]}: expected finite numbers as values, got {bad['value'][0]}."
        )
    frame = frame.with_columns(value=values)
    if kind == "sample":  # an index may go on from task to task
        frame = frame.with_columns(
            output_type_id=pl.int_range(pl.len()).over(tasks).cast(pl.String)
        )
    elif kind != "pmf":
        levels = frame["output_type_id"].cast(pl.Float64, strict=False)
        if levels.null_count():
            bad = frame.filter(levels.is_null())
            raise ValueError(
                f"{bad[FILE][0]}: expected numbers as output_type_id of {kind}, got "
                f"{bad['output_type_id'][0]}."
            )
        if kind == "quantile":
            levels = levels.round(_DECIMALS_OF_LEVELS)
        frame = frame.with_columns(output_type_id=levels.cast(pl.String))
    try:
        wide = frame.pivot(
            on="output_type_id", index=tasks, values="value", aggregate_function=None
        )
    except pl.exceptions.PolarsError:
        twice = frame.filter(pl.struct([*tasks, "output_type_id"]).is_duplicated())
        words = task_in_words(twice, 0, [*tasks, "output_type_id"])
        raise ValueError(
            f"{path}: expected one value for each task, got two for {words}."
        ) from None
    files = frame.select([*tasks, FILE]).unique(tasks, keep="first")
    return wide.join(files, on=tasks, how="left", nulls_equal=True, maintain_order="left")


def usual_columns(wide: pl.DataFrame, names: list[str]) -> list[str]:
    """The levels that most forecasts have, so that one odd file does not count for all others."""
    if not len(wide):
        return names
    known = wide.select(pl.col(names).is_not_null()).to_numpy()
    sets, counts = np.unique(known, axis=0, return_counts=True)
    most = max(range(len(sets)), key=lambda k: (counts[k], sets[k].sum()))
    return [name for name, has in zip(names, sets[most], strict=True) if has]


def check_crossing(frame: pl.DataFrame, names: list[str], tasks: list[str]) -> None:
    """A ValueError if quantiles fall as levels rise; it names the first such forecast."""
    values = frame.select(names).to_numpy()
    falls = values[:, 1:] < values[:, :-1]
    rows = np.flatnonzero(falls.any(axis=1))
    if not rows.size:
        return
    row, k = int(rows[0]), int(np.argmax(falls[rows[0]]))
    words = task_in_words(frame, row, tasks)
    raise ValueError(
        f"{frame[FILE][row]}: expected quantiles that do not fall as levels rise, got "
        f"{values[row, k]:g} at {names[k]} and {values[row, k + 1]:g} at {names[k + 1]} for "
        f"{words}, as in {rows.size} of {len(frame)} forecasts of the model (sort=True, or "
        "--sort-quantiles on the command line, sorts them)."
    )


def why_unobserved(others: pl.DataFrame, known: pl.DataFrame, keys: list[str]) -> list[str]:
    """Which values of forecasts without an outcome never occur among what was observed."""
    found = []
    for key in keys:
        theirs = known[key].drop_nulls().unique()
        absent = others.filter(~pl.col(key).is_in(theirs.to_list()))
        if len(absent):
            found.append(
                f"{len(absent)} without an outcome have {key} {_some(absent[key])}, which the "
                f"observations do not have (they have {_some(theirs) or 'none'})"
            )
    return found


def why_incomplete(forecasts: pl.DataFrame, names: list[str], used: list[str], kind: str) -> str:
    """Which levels, categories or samples forecasts miss or have beyond all others, and where."""
    found = []
    incomplete = forecasts.filter(pl.any_horizontal(pl.col(used).is_null()))
    if len(incomplete):
        missing = listed([name for name in used if incomplete[name].null_count()], _SHOWN)
        where = f"(in {_files(incomplete)})"
        found.append(f"{len(incomplete)} miss the {_COLUMN[kind]} {missing} {where}")
    beyond = [name for name in names if name not in used]
    if beyond:
        odd = forecasts.filter(pl.any_horizontal(pl.col(beyond).is_not_null()))
        if len(odd):
            found.append(
                f"the {_COLUMN[kind]} {listed(beyond, _SHOWN)} is not used, which only {len(odd)} "
                f"have (in {_files(odd)})"
            )
    return "; ".join(found)


def _files(rows: pl.DataFrame) -> str:
    return listed([Path(x).name for x in rows[FILE].unique().sort().to_list()], _SHOWN)


def _some(values: pl.Series) -> str:
    return listed(values.drop_nulls().unique().sort().to_list(), _SHOWN)
