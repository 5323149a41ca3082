"""The columns of files; errors name the file, the column and the row."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from calibjax._base.text import listed
from calibjax.frames._frame import cells_of
from calibjax.frames._table import Table

# What Python calls by a word for many rows has the word for one column on the command line.
_OPTIONS = {"weights": "weight", "clusters": "cluster", "times": "time", "groups": "segments"}


@dataclasses.dataclass(frozen=True)
class FileTable(Table):
    """The columns of a file.

    Args:
        path: the file.
        columns: the columns by name, all of the same length if they are used together; a column of
            an npz file may hold vectors, one of JSON or Parquet lists.
        rows: what errors call each row: the line of a text, whose header is line 1; else None, and
            rows are counted from 0.
        paths: the file of each row; None if there is one file.
        written: what the columns do not say of how the file is written: of a text a `Text`, of
            JSON its content; else None.
    """

    path: Path
    columns: dict[str, pl.Series]
    rows: np.ndarray | None = None
    paths: np.ndarray | None = None
    written: Any = None

    @property
    def source(self) -> str:
        return str(self.path)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def option(self, name: str, value: object = None) -> str:
        option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
        return option if value is None or value is True else f"{option} {value!r}"

    def say(self, message: str) -> None:
        print(message, file=sys.stderr)

    def cell_name(self, name: str, row: int) -> str:
        path = self.path if self.paths is None else self.paths[row]
        return f"{path}, column {name}, row {self.row_numbers[row]}"

    @property
    def row_names(self) -> np.ndarray:
        if self.paths is None:
            return self.row_numbers
        pairs = zip(self.row_numbers, self.paths, strict=True)
        return np.array([f"{row} of {path}" for row, path in pairs], object)

    @staticmethod
    def joined(tables: "Sequence[FileTable]") -> "FileTable":
        """The rows of one table after those of the other, with the columns of the first."""
        first, *others = tables
        if not others:
            return first
        for other in others:
            missing = [name for name in first.columns if name not in other.columns]
            if missing:
                raise ValueError(
                    f"{other.path}: expected the columns of {first.path}, got none called "
                    f"{listed(missing)}."
                )
        frames = [pl.DataFrame([table.columns[x] for x in first.columns]) for table in tables]
        try:
            frame = pl.concat(frames, how="vertical_relaxed")
        except pl.exceptions.PolarsError as error:
            reason = str(error).split("\n")[0]
            raise ValueError(f"{listed([x.path for x in tables])}: {reason}.") from None
        sizes = [len(x) for x in frames]
        rows = [table.row_numbers for table in tables]
        paths = np.repeat(np.array([str(table.path) for table in tables], object), sizes)
        columns = {x.name: x for x in frame.iter_columns()}
        return FileTable(first.path, columns, np.concatenate(rows), paths)

    def where(self, condition: str) -> "FileTable":
        """The rows for which a condition of SQL is true, such as ``lead == 3 and day >= 2``."""
        flat = {name: x for name, x in self.columns.items() if not x.dtype.is_nested()}
        try:
            frame = pl.DataFrame([_as_numbers(x).alias(name) for name, x in flat.items()])
            sql = _with_quoted_names(condition, self.names)
            (found,) = frame.select(pl.sql_expr(sql).alias("found")).iter_columns()
        except (pl.exceptions.PolarsError, ValueError) as error:
            reason = str(error).splitlines()[0]
            if "cannot compare string with numeric" in reason:
                reason = "a column of numbers is compared with a text; write numbers without quotes"
            raise ValueError(f"--where {condition}: {reason}.") from None
        if found.dtype != pl.Boolean or len(found) != len(frame):
            raise ValueError(
                f"--where {condition}: expected true or false for each row, such as 'lead == 3', "
                "with texts in single quotes."
            )
        kept = self._kept(found.fill_null(False).to_numpy())
        self.say(f"{self.path}: {len(kept)} of {len(self)} rows are used, where {condition}.")
        return kept

    def _cells(self, name: str) -> np.ndarray:
        return cells_of(name, self.columns[name])

    def _kept(self, kept: np.ndarray) -> "FileTable":
        if any(len(x) != len(kept) for x in self.columns.values()):
            raise ValueError(f"{self.path}: expected columns of the same length to choose rows of.")
        return self.taken(np.flatnonzero(kept))

    def taken(self, order: np.ndarray) -> "FileTable":
        """Some rows, or all in another order, which errors call as before."""
        columns = {name: x.gather(order) for name, x in self.columns.items()}
        paths = None if self.paths is None else self.paths[order]
        return FileTable(self.path, columns, self.row_numbers[order], paths)

    @property
    def row_numbers(self) -> np.ndarray:
        """What errors call each row."""
        return np.arange(len(self)) if self.rows is None else self.rows


def _with_quoted_names(condition: str, names: Sequence[str]) -> str:
    """A condition in which names with a dot, which SQL takes for those of tables, have quotes."""
    dotted = sorted((x for x in names if "." in x), key=len, reverse=True)
    if not dotted:
        return condition
    # Texts and names in quotes stay as they are.
    bare = "|".join(map(re.escape, dotted))
    pattern = rf"""('[^']*'|"[^"]*")|(?<![\w.])({bare})(?![\w.])"""
    return re.sub(pattern, lambda found: found[1] or f'"{found[2]}"', condition)


def _as_numbers(column: pl.Series) -> pl.Series:
    """A column of texts that are all numbers as numbers, and any other one as it is."""
    if column.dtype != pl.String:
        return column
    numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == column.null_count() else column
