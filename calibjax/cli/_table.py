"""Columns of numbers and of labels; errors name the file, the column and the row."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Never

import jax.numpy as jnp
import numpy as np
import polars as pl
import typer

from calibjax.cli._terminal import BadInput

# What pandas and R write where a value is missing.
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")
_TRUE, _FALSE = ["true", "yes", "1", "1.0"], ["false", "no", "0", "0.0"]


class Text(NamedTuple):
    """How the numbers of a text are written: what is between columns, and before decimals."""

    separator: str
    decimal: str


@dataclasses.dataclass(frozen=True)
class Table:
    """The columns of a file.

    Args:
        path: the file.
        columns: the columns by name, all of the same length if they are used together; a column of
            an npz file may hold vectors, one of JSON or Parquet lists.
        rows: what errors call each row: the line of a text, whose header is line 1; else None, and
            rows are counted from 0.
        paths: the file of each row; None if there is one file.
        text: how the file is written; None if it is no text with separators.
    """

    path: Path
    columns: dict[str, pl.Series]
    rows: np.ndarray | None = None
    paths: np.ndarray | None = None
    text: Text | None = None

    @staticmethod
    def joined(tables: "Sequence[Table]") -> "Table":
        """The rows of one table after those of the other, with the columns of the first."""
        first, *others = tables
        if not others:
            return first
        for other in others:
            missing = [name for name in first.columns if name not in other.columns]
            if missing:
                raise BadInput(
                    f"{other.path}: expected the columns of {first.path}, got none called "
                    f"{listed(missing)}."
                )
        frames = [pl.DataFrame([table.columns[x] for x in first.columns]) for table in tables]
        try:
            frame = pl.concat(frames, how="vertical_relaxed")
        except pl.exceptions.PolarsError as error:
            reason = str(error).split("\n")[0]
            raise BadInput(f"{listed([x.path for x in tables])}: {reason}.") from None
        sizes = [len(x) for x in frames]
        rows = [table.row_numbers for table in tables]
        paths = np.repeat(np.array([str(table.path) for table in tables], object), sizes)
        columns = {x.name: x for x in frame.iter_columns()}
        return Table(first.path, columns, np.concatenate(rows), paths)

    def where(self, condition: str) -> "Table":
        """The rows for which a condition of SQL is true, such as ``lead == 3 and day >= 2``."""
        flat = {name: x for name, x in self.columns.items() if not x.dtype.is_nested()}
        try:
            frame = pl.DataFrame([as_numbers(x).alias(name) for name, x in flat.items()])
            (found,) = frame.select(pl.sql_expr(condition).alias("found")).iter_columns()
        except (pl.exceptions.PolarsError, ValueError) as error:
            raise BadInput(f"--where {condition}: {str(error).splitlines()[0]}.") from None
        if found.dtype != pl.Boolean or len(found) != len(frame):
            raise BadInput(
                f"--where {condition}: expected true or false for each row, such as 'lead == 3', "
                "with texts in single quotes."
            )
        return self._kept(found.fill_null(False).to_numpy())

    def without_missing(self, names: Iterable[str], but: Sequence[str]) -> "Table":
        """The rows that miss no value of these columns; a text of `but` is a value: a class NA."""
        present = np.ones(len(self), bool)
        texts = [x for x in _MISSING if x not in but]
        for name in names:
            column = self.column(name)
            found = column.is_not_null()
            if column.dtype == pl.String:
                found &= ~column.str.strip_chars().is_in(texts).fill_null(False)
            if column.dtype.is_float():
                found &= ~column.is_nan().fill_null(False)
            present &= found.to_numpy()
        return self._kept(present)

    def _kept(self, kept: np.ndarray) -> "Table":
        """Some of the rows, which errors call as before."""
        if any(len(x) != len(kept) for x in self.columns.values()):
            raise BadInput(f"{self.path}: expected columns of the same length to choose rows of.")
        rows = self.row_numbers
        columns = {name: x.filter(kept) for name, x in self.columns.items()}
        paths = None if self.paths is None else self.paths[kept]
        return Table(self.path, columns, rows[kept], paths)

    @property
    def row_numbers(self) -> np.ndarray:
        """What errors call each row."""
        return np.arange(len(self)) if self.rows is None else self.rows

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def column(self, name: str) -> pl.Series:
        """A column; an error if there is none of this name."""
        if name not in self.columns:
            raise BadInput(
                f"{self.path}: there is no column {name}, only {listed(list(self.columns))}."
            )
        return self.columns[name]

    def truths(self, name: str) -> np.ndarray:
        """A column of truth values ``[n]``: true and false, yes and no, or 1 and 0."""
        words = self.column(name).cast(pl.String).str.strip_chars().str.to_lowercase()
        known = words.is_in([*_TRUE, *_FALSE]).fill_null(False)
        self.check(name, known.to_numpy(), "true or false")
        return words.is_in(_TRUE).to_numpy()

    def numbers(self, name: str) -> np.ndarray:
        """A column of finite numbers ``[n]``, in the dtype of jax."""
        values = self._values(name)
        if values.ndim > 1 and values.shape[1] > 1:
            raise BadInput(
                f"{self.path}, column {name}: expected one number in each row, got "
                f"{values.shape[1]}."
            )
        return values.reshape(len(values))

    def _values(self, name: str, filled: bool = False) -> np.ndarray:
        """The same for a column of an npz file that may hold vectors ``[n, m]``."""
        column = self.column(name)
        if column.dtype == pl.String:
            found = column.str.strip_chars().cast(pl.Float64, strict=False)
        elif column.dtype.is_numeric() or column.dtype == pl.Boolean:
            found = column.cast(pl.Float64)
        elif isinstance(column.dtype, pl.Array) and column.dtype.inner.is_numeric():
            found = column
        elif isinstance(column.dtype, pl.List) and column.dtype.inner.is_numeric():
            found = self._array_of_lists(name, filled)
        else:
            came = str(column.dtype)
            if isinstance(column.dtype, pl.Array):
                came = f"an array of shape {[len(column), *column.dtype.shape]}"
            raise BadInput(f"{self.path}, column {name}: expected numbers, got {came}.")
        # A number that is too large for the dtype becomes infinite, which is an error below.
        with np.errstate(over="ignore"):
            values = found.to_numpy().astype(jnp.result_type(float))
        finite = np.isfinite(values)
        words = "a finite number"
        if column.dtype == pl.String and column.str.contains(",", literal=True).any():
            words += ", whose decimals come after a point"
        self.check(name, finite if values.ndim == 1 else finite.all(axis=1), words)
        return values

    def array(self, name: str, filled: bool = False) -> np.ndarray:
        """The numbers of one array of two dimensions, ``[n, m]``.

        Args:
            name: the column.
            filled: whether zeros follow the numbers of rows that have fewer than others.
        """
        values = self._values(name, filled)
        if values.ndim == 2:
            return values
        raise BadInput(
            f"{self.path}, column {name}: expected a pattern with one *, such as '{name}_*', or an "
            "array of two dimensions."
        )

    def _array_of_lists(self, name: str, filled: bool) -> pl.Series:
        column = self.column(name)
        self.check(name, column.is_not_null().to_numpy(), "a list of numbers")
        sizes = column.list.len().to_numpy()
        if not filled and len(column):
            words = f"{sizes[0]} numbers as in the first row"
            self.check(name, sizes == sizes[0], words, [f"{size} numbers" for size in sizes])
        size = int(max(sizes, default=0))
        if min(sizes, default=0) < size:
            typer.echo(
                f"{self.path}, column {name}: rows have {min(sizes)} to {size} numbers; the "
                "probability of what a row lacks is 0.",
                err=True,
            )
        zeros = pl.lit(0.0).repeat_by(size - pl.col(name).list.len())
        frame = pl.DataFrame([column]).select(pl.col(name).list.concat(zeros))
        return frame.to_series().list.to_array(size)

    def names_of(self, pattern: str, target: str | None) -> list[str] | None:
        """The names of several columns; None for one array.

        Args:
            pattern: the names, with one ``*``, or the name of an array.
            target: the column of targets, which is none of them.
        """
        if "*" not in pattern:
            return None
        start, end = _halves(pattern)
        names = [
            name
            for name in self.columns
            if name.startswith(start) and name.endswith(end) and name != target
            if len(name) > len(start + end)
        ]
        if len(names) < 2:
            raise BadInput(
                f"{self.path}: expected at least two columns {pattern}, got "
                f"{listed(names) or 'none'}; the columns are {listed(list(self.columns))}."
            )
        return names

    def check(self, name: str, valid: np.ndarray, expected: str, got: Any = None) -> None:
        """An error that names the first row which is not valid.

        Args:
            name: the column.
            valid: truth values ``[n]``.
            expected: what a value should be, in words.
            got: what came, for each row; None for the values of the column.
        """
        if valid.all():
            return
        row = int(np.argmin(valid))
        value = (self.column(name) if got is None else got)[row]
        came = "nothing" if value is None else str(value) or "an empty text"
        self.fail(name, row, f"expected {expected}, got {came}.")

    def fail(self, name: str, row: int, message: str) -> Never:
        """An error at a row, which is counted from 0 here and as users count it in the message."""
        number = self.row_numbers[row]
        path = self.path if self.paths is None else self.paths[row]
        raise BadInput(f"{path}, column {name}, row {number}: {message}")


def as_numbers(column: pl.Series) -> pl.Series:
    """A column of texts that are all numbers as numbers, and any other one as it is."""
    if column.dtype != pl.String:
        return column
    numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
    return numbers if numbers.null_count() == column.null_count() else column


def stems(pattern: str, names: Sequence[str]) -> list[str]:
    """What the * of a pattern stands for in each name."""
    start, end = _halves(pattern)
    return [name[len(start) : len(name) - len(end)] for name in names]


def _halves(pattern: str) -> tuple[str, str]:
    start, _, end = pattern.partition("*")
    if "*" in end:
        raise BadInput(f"A pattern of columns must have one *, got {pattern}.")
    return start, end


def listed(items: Sequence[object]) -> str:
    """Names or numbers in an error; the first ten of many."""
    shown = [f"{x:g}" if isinstance(x, float) else str(x) for x in items[:10]]
    return ", ".join([*shown, f"… {len(items)} in all"] if len(items) > 10 else shown)
