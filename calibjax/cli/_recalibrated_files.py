"""The files of `calibjax recalibrate`: a map with its columns, and new numbers in a file."""

import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from calibjax._base.files import digest_of, json_of
from calibjax._base.text import listed
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.distribution import Distribution
from calibjax._data.typed_column import typed_columns
from calibjax.cli._columns import Columns
from calibjax.frames import PredictionColumns, Table, groups_of, stems_of
from calibjax.frames.files import Text, lines_with
from calibjax.recalibration import Recalibrator, content_of, load_recalibrator

# The readable formats that can be written again.
WRITTEN = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The columns that fitted a map.

    Args:
        path: their file, or that of the map.
        columns: those of the predictions; None of a map that `Recalibrator.save` has written.
        target: the column of targets, which other files may have or not.
    """

    path: Path
    columns: PredictionColumns | None
    target: str | None

    def columns_in(self, table: Table, said: Columns | None) -> PredictionColumns:
        """The columns of another file whose predictions the map takes.

        Args:
            table: the file.
            said: what the user says of its columns; if nothing or None, they are called as those
                that fitted the map.

        Raises:
            ValueError: these are predictions of another kind, of other classes, or at other levels.
        """
        ours = self.columns
        if said is not None and (ours is None or said.are_said):
            found = said.prediction_columns(table)
            kinds = ("kind", "classes", "levels") if ours is not None else ()
            pairs = [(what, getattr(ours, what), getattr(found, what)) for what in kinds]
        else:
            assert ours is not None  # the map has just been fitted
            found, names = ours, None
            if "*" in ours.pattern:
                names = list(stems_of(table, ours.pattern, self.target))
            pairs = [("the columns", sorted(ours.names), sorted(names or ours.names))]
        for what, old, new in pairs:
            if old != new:
                was, now = (listed(x) if isinstance(x, list) else str(x) for x in (old, new))
                words = f"expected {what} {was} of {self.path}, got {now}."
                raise ValueError(f"{table.source}: {words}")
        return found


def map_as_file(recalibrator: Recalibrator, fitted: Fitted) -> bytes:
    """A file that `read_map` reads, and `load_recalibrator` too."""
    assert fitted.columns is not None
    columns = dataclasses.asdict(fitted.columns) | {"target": fitted.target}
    columns["digest"] = digest_of(columns)
    return json_of(content_of(recalibrator) | {"columns": columns})


def read_map(path: Path) -> tuple[Recalibrator, Fitted]:
    """The map of a file, and the columns that fitted it."""
    recalibrator = load_recalibrator(path)
    node = json.loads(path.read_bytes()).get("columns")
    if node is None:
        return recalibrator, Fitted(path, None, None)
    if not isinstance(node, dict) or node.pop("digest", None) != digest_of(node):
        raise ValueError(f"{path}: the columns in the file are damaged, fit the map again.")
    target = node.pop("target")
    return recalibrator, Fitted(path, PredictionColumns(**node), target)


def columns_beside(
    table: Table, groups: Sequence[str], covariates: Sequence[str], is_fit: bool
) -> dict[str, Any]:
    """Groups and covariates as `fit_recalibrator` and a map take them, columns ``[n]`` by names.

    Each kind is None without any.  Numbers of covariates are finite.  The rows of the fit decide
    whether texts are numbers, and a map reads those of other rows.
    """
    numbers = {name: table.numbers(name) for name in covariates}
    found = typed_columns("groups", groups_of(table, groups, read=is_fit), len(table))
    return {"groups": found or None, "covariates": numbers or None}


def method_of(columns: PredictionColumns, method: str | None, has_covariates: bool) -> str:
    """The method; of normal predictions one whose predictions are normal again."""
    if columns.kind != "mean":
        return method or "auto"
    if has_covariates or method not in (None, "shift_scale", "identity"):
        got = "--covariates" if has_covariates else method
        raise ValueError(
            f"--mean and --sd can be recalibrated by shift_scale, got {got}, after which "
            "predictions are not normal; recalibrate quantiles of them, with --quantiles."
        )
    return method or "shift_scale"


@dataclasses.dataclass(frozen=True)
class NewRows:
    """Predictions of a file that a map recalibrates.

    Args:
        table: the file.
        rows: all of its rows, or those that miss nothing.
        columns: those of the predictions.
        predictions: n predictions of the rows.
        beside: groups and covariates, as the map takes them.
    """

    table: Table
    rows: Table
    columns: PredictionColumns
    predictions: Distribution
    beside: dict[str, Any]

    @classmethod
    def read(
        cls,
        path: Path,
        columns: Columns,
        fitted: Fitted,
        said: Columns | None,
        beside: tuple[Sequence[str], Sequence[str]],
    ) -> "NewRows":
        """The rows of a file; a row without a value is an error, or with --drop-missing left out.

        Args:
            path: the file.
            columns: how files are read.
            fitted: the columns that fitted the map.
            said: what the user says of the columns, or None.
            beside: the names of groups and of covariates.
        """
        table = columns.table(path)
        used = fitted.columns_in(table, said)
        rows, absent = table, used.absent_by_column(table)
        if columns.drop_missing:
            rows = table.without_missing([*used.names, *beside[1]], used.classes or [], absent)
        else:
            words = "a value (--drop-missing leaves rows without one as they are)"
            for name in used.names:
                table.check_present(name, words, absent.get(name, False))
        predictions = used.read(rows)
        if not len(predictions):
            raise ValueError(f"{path}: expected at least 1 row, got 0.")
        return cls(table, rows, used, predictions, columns_beside(rows, *beside, is_fit=False))

    def recalibrated(self, recalibrator: Recalibrator) -> tuple[bytes, list[str]]:
        """The content of the file with new numbers, and what is new in it, in words."""
        table, rows, used = self.table, self.rows, self.columns
        found = recalibrator(self.predictions, **self.beside)
        if used.kind == "mean":
            method_of(used, recalibrator.fit.method, bool(self.beside["covariates"]))
        content = with_columns_of(table, rows, used.columns_of(found, used.absent(rows)))
        left = len(table) - len(rows)
        stay = f"; {left} rows without a value are unchanged" if left else ""
        words = f"{len(rows)} rows with new {' and '.join(used.shown())}{stay}."
        return content, [words, *_below_zero(self.predictions, found)]


def _below_zero(new: Distribution, recalibrated: Distribution) -> list[str]:
    """A line about rows that a map brought below 0, where no forecast is."""
    if not isinstance(recalibrated, KnownQuantiles):
        return []
    before, after = (np.asarray(jax.tree.leaves(p)[0]) for p in (new, recalibrated))
    n_below = int(np.sum(np.any(after < 0, axis=1)))
    if not n_below or np.any(before < 0):
        return []
    return [
        f"{n_below} rows have values below 0 only after recalibration: if targets cannot be "
        "negative, use --lower 0."
    ]


def with_columns_of(table: Table, rows: Table, columns: Mapping[str, np.ndarray]) -> bytes:
    """The content of the file of a table, in which some rows of columns have other numbers.

    All other values are kept, and so is the order of rows and columns.

    Args:
        table: what was read from the file.
        rows: all of its rows, or those that have new numbers.
        columns: the numbers of these rows, ``[k]``, or of an array or of lists ``[k, m]``, by names
            of the table; NaN stands for what a row lacks.
    """
    is_new, new = np.isin(table.rows, rows.rows), []
    for name, values in columns.items():
        spread = np.full((len(table), *values.shape[1:]), np.nan, values.dtype)
        spread[is_new] = values
        new.append(_series(table.series[name], spread))
    written, found = table.written, io.BytesIO()
    if isinstance(written, bytes):
        return lines_with(table, new)
    frame = pl.DataFrame(table.series)
    # Polars uses the latter of two types of lists, and integers would cut off decimals.
    old = (pl.col(x.name).cast(x.dtype) if x.dtype.is_nested() else pl.col(x.name) for x in new)
    frame = frame.with_columns(pl.coalesce(*pair) for pair in zip(new, old, strict=True))
    if isinstance(written, Text):
        return written.content_of(frame, list(columns))
    write = frame.write_parquet if table.source.lower().endswith(".parquet") else frame.write_ipc
    write(found)
    return found.getvalue()


def _series(old: pl.Series, values: np.ndarray) -> pl.Series:
    """A new column, of the type of the old one if this is of floats, with null for NaN."""
    kind: Any = old.dtype
    if not isinstance(kind, pl.List | pl.Array):
        new = pl.Series(old.name, values, nan_to_null=True)
        return new.cast(kind) if kind.is_float() else new
    rows: list[list[float | None] | None] = []
    for row, x in zip(values.reshape(len(old), -1).tolist(), old.to_list(), strict=True):
        new_row = [None if math.isnan(value) else value for value in row[: len(x or ())]]
        rows.append(None if new_row.count(None) == len(new_row) else new_row)
    return pl.Series(old.name, rows, kind if kind.inner.is_float() else pl.List(pl.Float64))
