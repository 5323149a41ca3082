"""From a file to columns of numbers and of labels; errors name the file, the column and the row."""

import csv
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Never
from zipfile import BadZipFile

import jax.numpy as jnp
import numpy as np
import polars as pl

from calibjax.cli._terminal import BadInput

_TRUE, _FALSE = ["true", "yes", "1", "1.0"], ["false", "no", "0", "0.0"]


@dataclasses.dataclass(frozen=True)
class Table:
    """The columns of a file.

    Args:
        path: the file.
        columns: the columns by name, all of the same length if they are used together; a column of
            an npz file may hold vectors.
        rows: what errors call each row: the line of a CSV file, whose header is line 1; else None,
            and rows are counted from 0.
    """

    path: Path
    columns: dict[str, pl.Series]
    rows: np.ndarray | None = None

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

    def _values(self, name: str) -> np.ndarray:
        """The same for a column of an npz file that may hold vectors ``[n, m]``."""
        column = self.column(name)
        if column.dtype == pl.String:
            found = column.str.strip_chars().cast(pl.Float64, strict=False)
        elif column.dtype.is_numeric() or column.dtype == pl.Boolean:
            found = column.cast(pl.Float64)
        elif isinstance(column.dtype, pl.Array) and column.dtype.inner.is_numeric():
            found = column
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

    def array(self, name: str) -> np.ndarray:
        """The numbers of one array of two dimensions, ``[n, m]``."""
        values = self._values(name)
        if values.ndim == 2:
            return values
        raise BadInput(
            f"{self.path}, column {name}: expected a pattern with one *, such as '{name}_*', or an "
            "array of two dimensions."
        )

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
        number = row if self.rows is None else self.rows[row]
        raise BadInput(f"{self.path}, column {name}, row {number}: {message}")


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


def read_table(path: Path) -> Table:
    """The columns of a CSV, npz or Parquet file, whose ending says which it is."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"{path}: expected a file that ends in {', '.join(_READERS)}.")
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file.")
    try:
        return reader(path)
    except (pl.exceptions.PolarsError, BadZipFile, EOFError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise BadInput(
            f"{path}: this is no {path.suffix} file that can be read: {reason}."
        ) from error


def _read_csv(path: Path) -> Table:
    names, n_before = csv_header(path)
    # All as text, so that an error can quote what is there.
    frame = pl.read_csv(path, has_header=False, infer_schema=False, skip_rows=n_before)
    breaks = frame.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True)))
    lines_of_rows = breaks.to_series().to_numpy().astype(int) + 1
    rows = n_before + 1 + np.cumsum(lines_of_rows) - lines_of_rows
    kept = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().to_numpy().copy()
    kept[0] = False
    columns = zip(names, frame.filter(kept).iter_columns(), strict=True)
    return Table(path, {name: x.alias(name) for name, x in columns if name}, rows[kept])


def csv_header(path: Path) -> tuple[list[str], int]:
    """The names of the columns of a CSV file, and the number of blank lines before them."""
    with path.open("rb") as bytes_of_file:
        if b"\0" in bytes_of_file.read(4):
            raise BadInput(f"{path}: expected a text in UTF-8, got UTF-16; save it as UTF-8.")
    names: list[str] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, n_before = csv.reader(file), 0
        for names in reader:
            if any(names):
                break
            n_before = reader.line_num
    for separator, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if len(names) == 1 and separator in names[0]:
            raise BadInput(
                f"{path}: expected commas between columns, got {word}; save it with commas, and "
                "with points in numbers."
            )
    for name in names:
        if name and names.count(name) > 1:
            raise BadInput(f"{path}: expected different names of columns, got {name} twice.")
    return names, n_before


def _read_parquet(path: Path) -> Table:
    return Table(path, {x.name: x for x in pl.read_parquet(path).iter_columns()})


def _read_npz(path: Path) -> Table:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return Table(path, {k: pl.Series(k, np.atleast_1d(x)) for k, x in arrays.items()})


_READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
