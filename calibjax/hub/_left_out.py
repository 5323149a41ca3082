"""Why forecasts have no outcome, or are incomplete, in words."""

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from calibjax.hub._tables import FILE
from calibjax.hub._wide import COLUMN


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
        missing = [name for name in used if incomplete[name].null_count()]
        found.append(
            f"{len(incomplete)} miss the {COLUMN[kind]} {_few(missing)} (in {_files(incomplete)})"
        )
    beyond = [name for name in names if name not in used]
    if beyond:
        odd = forecasts.filter(pl.any_horizontal(pl.col(beyond).is_not_null()))
        if len(odd):
            found.append(
                f"the {COLUMN[kind]} {_few(beyond)} is not used, which only {len(odd)} have (in "
                f"{_files(odd)})"
            )
    return "; ".join(found)


def _files(rows: pl.DataFrame) -> str:
    return _few([Path(x).name for x in rows[FILE].unique().sort().to_list()])


def _some(values: pl.Series) -> str:
    return _few(values.drop_nulls().unique().sort().to_list())


def _few(values: Iterable[str]) -> str:
    """A few of some texts: the first ones and the last."""
    values = list(values)
    return ", ".join(values if len(values) <= 4 else [*values[:3], "…", values[-1]])
