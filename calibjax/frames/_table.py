"""Columns of a frame, of a file, or of arrays: errors name the column and the row."""

import dataclasses
import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Never, Self

import numpy as np

from calibjax._base.struct import on_host
from calibjax._base.text import listed
from calibjax._data.column_options import option_name
from calibjax._data.typed_column import NO_VALUE, TypedColumn, text_of, typed_column
from calibjax._data.typed_column import is_missing as is_missing_item
from calibjax.frames._array_conversion import as_floats, cells_of, is_missing, kinds_of

_CODE = re.compile(r"[+-]?0\d")
_TRUE, _FALSE = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0")

#: What was given in each row, or a function of a row; None for the values of a column.
Got = Sequence[object] | np.ndarray | Callable[[int], object] | None


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns by their names.

    Args:
        columns: arrays ``[n]`` or ``[n, m]``.  Texts, lists, and what else NumPy has no dtype for,
            are objects.  Missing values are None, NaN, NaT or NA of pandas.
        rows: what errors call each row: a number from 0, or the line of a text, whose header is
            line 1.
        source: what errors call the table, such as the path of a file; "" for arrays.
        on_command_line: whether errors name options of the command line, and not arguments.
        dims: columns whose values name the rows of a grid.
        within: what the columns of arrays ``[n, m]`` are called, by the names of the arrays.
        paths: the file of each row; None if there is one file.
        untyped: the columns of a text file, where only the cells say whether they hold numbers; not
            those whose numbers are in quotes.
        series: the columns of a file as Polars has them, and `written`, what they do not say of
            how it is written: of a text a `Text`, of JSON its content.
    """

    columns: Mapping[str, np.ndarray]
    rows: np.ndarray
    source: str = "data"
    on_command_line: bool = False
    dims: Sequence[str] = ()
    within: Mapping[str, list[Any]] = dataclasses.field(default_factory=dict)
    paths: np.ndarray | None = None
    untyped: Set[str] = frozenset()
    series: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    written: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def row_names(self) -> np.ndarray:
        """What each row is called, among the rows of all files."""
        if self.paths is None:
            return self.rows
        pairs = zip(self.rows, self.paths, strict=True)
        return np.array([f"{row} of {path}" for row, path in pairs], object)

    def cell_name(self, name: str, row: int) -> str:
        """What errors call a row of a column."""
        where = f"{self.called(name)}, row {self.rows[row]}"
        if self.paths is not None:
            where = f"{self.paths[row]}{where.removeprefix(self.source)}"
        if self.dims:
            at = [f"{dim} {text_of(self.columns[dim][row])}" for dim in self.dims]
            where = ", ".join([self.called(name), *at])
        return where

    def option(self, name: str, value: object = None) -> str:
        """How users write an argument, such as ``level=0.1`` or ``--level 0.1``."""
        if not self.on_command_line:
            return name if value is None else f"{name}={value!r}"
        option = option_name(name)
        return option if value is None or value is True else f"{option} {value!r}"

    def say(self, message: str) -> None:
        """Shows users a note."""
        if self.on_command_line:
            print(message, file=sys.stderr)
        else:
            warnings.warn(message, stacklevel=2)

    def taken(self, order: np.ndarray) -> Self:
        """Some rows, or all in another order, which errors call as before."""

        def take(columns: Mapping[str, Any]) -> dict[str, Any]:
            return {name: x[order] if len(x) == len(self) else x for name, x in columns.items()}

        return dataclasses.replace(
            self,
            columns=take(self.columns),
            rows=self.rows[order],
            paths=None if self.paths is None else self.paths[order],
            series=take(self.series),
        )

    def cells(self, name: str) -> np.ndarray:
        """A column ``[n]`` or ``[n, m]``; an error if it does not exist."""
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, 2)
            if any(x.startswith(f"{name}.") for x in self.columns):
                near = [f"'{name}.*', for the keys of an object"]
            hint = f"; is it {' or '.join(near)}?" if near else "."
            names = listed(list(self.columns))
            raise ValueError(f"{self.source}: column {name} not found, only {names}{hint}")
        cells = self.columns[name]
        if len(cells) != len(self):
            self.refuse(name, f"expected one value for each of {len(self)} rows, got {len(cells)}")
        return cells

    def one_value(self, name: str) -> np.ndarray:
        """The cells ``[n]`` of a column that has one value in each row."""
        cells = self.cells(name)
        if cells.ndim > 1 or has_lists(cells):
            self.refuse(name, "expected one value in each row")
        return cells

    def without_missing(
        self, names: Iterable[str], but: Sequence[str], absent: Mapping[str, np.ndarray]
    ) -> Self:
        """The rows that miss no value of these columns.

        Args:
            names: the columns.
            but: texts that are values, such as the name of a class NA.
            absent: for some columns the rows ``[n]`` that miss nothing, though something is empty.
        """
        present, words, counts = np.ones(len(self), bool), "", []
        for name in names:
            cells = self.cells(name)
            found = is_missing(cells)
            if cells.dtype == object:
                words_of = [x.strip() if isinstance(x, str) else None for x in cells.flat]
                is_text = np.array([x in NO_VALUE and x not in but for x in words_of], bool)
                if is_text.any() and np.isnan(as_floats(cells[~(found | is_text)])).any():
                    # Among names it may be one, such as that of Namibia.
                    taken = sorted({x.strip() or "an empty text" for x in cells[is_text]})
                    words += f"; of {name}, {' and '.join(taken)} is taken for missing"
                found |= is_text
            found &= ~absent.get(name, np.False_)
            present &= ~found
            counts += [f"{found.sum()} of {name}"] if found.any() else []
        kept = self.taken(np.flatnonzero(present))
        words = f" (missing are {listed(counts)}){words}" if counts else ""
        used = f"{len(kept)} of {len(self)} rows are used"
        self.say(f"{self.source}: {used}, without missing values{words}.")
        return kept

    def check_present(self, name: str, expected: str, absent: np.ndarray | bool = False) -> None:
        """An error at the first row without a value, where something is not absent."""
        self.check(name, ~is_missing(self.cells(name)) | absent, expected)

    def typed(self, name: str) -> TypedColumn:
        """A column without missing values, by its type."""
        cells = self.one_value(name)
        self.check_present(name, "a value")
        return typed_column(name, cells, len(cells))

    def by_type(self, name: str, cells: np.ndarray) -> np.ndarray:
        """A column whose texts of numbers are numbers if it is `untyped`, NaN where one is missing.

        Whole numbers that a float would round, such as digests of 64 bits, are texts, and so are
        codes with leading zeros: 1, 01 and 001 are three.
        """
        if name not in self.untyped or cells.dtype != object:
            return cells
        numbers, texts = as_floats(cells), [x.strip() for x in cells if isinstance(x, str)]
        if not are_empty(cells[np.isnan(numbers)]).all() or any(map(_CODE.match, texts)):
            return cells
        large = cells[np.abs(numbers) >= 2**53].tolist()
        is_rounded = large and all(x.strip().lstrip("+-").isdecimal() for x in large)
        return cells if is_rounded else numbers

    def truths(self, name: str) -> np.ndarray:
        """A column of truth values ``[n]``: true and false, yes and no, or 1 and 0."""
        words = [text_of(x).strip().lower() for x in self.one_value(name)]
        self.check(name, np.isin(words, [*_TRUE, *_FALSE]), "true or false")
        return np.isin(words, _TRUE)

    def labels(self, name: str) -> np.ndarray:
        """A column without missing values; all but numbers and arrays as text, which is exact."""
        cells = self.cells(name)
        dropping = self.option("drop_missing", True)
        self.check_present(name, f"a label ({dropping} leaves out rows without one)")
        if has_lists(cells):
            self.refuse(name, "expected labels, got lists")
        if cells.dtype.kind in "biufU" or cells.ndim > 1:
            return cells
        are_texts = kinds_of(cells) == {str}
        return np.array(cells if are_texts else [text_of(x) for x in cells], dtype=str)

    def numbers(self, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """A column of finite numbers ``[n]``, and 0 where they are absent, in float64."""
        values = self.array(name, absent)
        if values.ndim > 1 and values.shape[1] > 1:
            self.refuse(name, f"expected one number in each row, got {values.shape[1]}")
        return values.reshape(len(values))

    def array(self, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """Finite numbers ``[n]`` or ``[n, m]``, and zeros where these are absent, in float64."""
        found = self.numbers_of_texts(name)
        if found is not None:
            return found
        cells = self.cells(name)
        if has_lists(cells):
            cells = self._array_of_lists(name, cells, absent is not None)
        if absent is not None:
            cells = np.where(absent, 0, cells)
        kinds = kinds_of(cells)
        are_dates = cells.dtype.kind in "mM" or any(hasattr(x, "isoformat") for x in kinds)
        if cells.ndim > 2 or cells.dtype.kind not in "biufO" or are_dates:
            given = f"an array of shape {list(cells.shape)}" if cells.ndim > 2 else str(cells.dtype)
            self.refuse(name, f"expected numbers, got {'dates' if are_dates else given}")
        items = cells.ravel().tolist() if str in kinds else []
        has_sign = "%" in "".join(x for x in items if isinstance(x, str))
        are_percent = [
            isinstance(x, str) and x.strip().endswith("%")
            for x in (items if has_sign else [])
            if not is_missing_item(x) and x != 0  # what stands where numbers are absent
        ]
        if are_percent and all(are_percent):
            shown = [x.strip().removesuffix("%") if isinstance(x, str) else x for x in items]
            values = as_floats(np.array(shown, object)).reshape(cells.shape) / 100
            self.say(f"{self.called(name)}: percentages are read as shares, 50% as 0.5.")
        else:
            values = as_floats(cells)
        finite = np.asarray(_are_finite(values).all(axis=tuple(range(1, values.ndim))))
        if not finite.all():
            self._refuse_numbers(name, cells, finite, any(are_percent))
        return values

    def numbers_of_texts(self, name: str) -> np.ndarray | None:
        """A column of a file whose cells are all texts of finite numbers ``[n]``; else None."""
        series = self.series.get(name)
        if series is None or str(series.dtype) != "String":
            return None
        numbers = series.cast(float, strict=False).to_numpy()
        return numbers if len(numbers) == len(self) and _are_finite(numbers).all() else None

    def _refuse_numbers(
        self, name: str, cells: np.ndarray, finite: np.ndarray, has_percent: bool
    ) -> Never:
        """The error at the first row without a finite number, and why it may have none."""
        words = "a finite number"
        if any(isinstance(x, str) and "," in x for x in cells.flat):
            shown = [x.replace(",", ".") if isinstance(x, str) else x for x in cells.flat]
            is_number = np.isfinite(as_floats(np.array(shown, object))) | are_empty(cells).ravel()
            if cells.ndim == 1 and is_number.mean() > 0.5:
                words += ", as in other rows, with commas before decimals"
                self.check(name, is_number, words)
            words += ", whose decimals come after a point"
        elif has_percent:
            words += ", with a percent sign in all rows or in none"
        elif are_empty(cells).all():
            words += " (no row has one)"
        elif are_empty(cells).any() and self.source:
            words += f" ({self.option('drop_missing', True)} leaves out rows without one)"
        self.check(name, finite, words)
        raise AssertionError

    def _array_of_lists(self, name: str, cells: np.ndarray, are_filled: bool) -> np.ndarray:
        """Lists of numbers as the rows of an array."""
        valid = np.array([isinstance(x, (list, np.ndarray)) for x in cells], bool)
        self.check(name, valid, "a list of numbers")
        sizes = np.array([len(x) for x in cells])
        if not are_filled:
            words = f"{sizes[0]} numbers as in the first row"
            self.check(name, sizes == sizes[0], words, lambda row: f"{sizes[row]} numbers")
        return as_floats(padded_lists(cells)[0])

    def check(
        self, name: str, valid: np.ndarray, expected: str, got: Got = None, hint: str = ""
    ) -> None:
        """An error that names the first row which is not valid.

        Args:
            name: the column.
            valid: truth values ``[n]``.
            expected: what a value should be, as text.
            got: the observed values, for each row, or a function of a row; None for the values of
                the column.
            hint: what to do, behind a semicolon.
        """
        if valid.all():
            return
        row = int(np.argmin(valid))
        value: Any = got(row) if callable(got) else (self.cells(name) if got is None else got)[row]
        is_none = np.ndim(value) == 0 and is_missing_item(value)
        shown = "nothing" if is_none else text_of(value) or "an empty text"
        self.fail(name, row, f"expected {expected}, got {shown}{hint}.")

    def fail(self, name: str, row: int, message: str) -> Never:
        """An error at a row, which is counted from 0 here and as users count it in the message."""
        raise ValueError(f"{self.cell_name(name, row)}: {message}")

    def refuse(self, name: str, message: str) -> Never:
        """An error about a column."""
        raise ValueError(f"{self.called(name)}: {message}.")

    def called(self, name: str) -> str:
        """What errors call a column."""
        return f"{self.source}, column {name}" if self.source else name


def table_of_arrays(**arrays: Any) -> Table:
    """Arguments ``[n]``, ``[n, 1]`` or ``[n, m]`` as columns; errors call them by their names."""
    columns = {name: cells_of(name, x) for name, x in arrays.items()}
    columns = {name: x[:, 0] if x.shape[1:] == (1,) else x for name, x in columns.items()}
    return Table(columns, np.arange(min(map(len, columns.values()))), source="")


def _are_finite(values: np.ndarray) -> np.ndarray:
    # A number that is too large for the dtype of jax becomes infinite, which is an error.
    with np.errstate(over="ignore"):
        return np.isfinite(on_host(values))


def has_lists(cells: np.ndarray) -> bool:
    """Whether a column has lists, or objects of JSON."""
    kinds = kinds_of(cells) if cells.ndim == 1 else ()
    return any(issubclass(x, (list, np.ndarray, dict)) for x in kinds)


def are_empty(cells: np.ndarray) -> np.ndarray:
    """Which cells miss a value, or have a text that stands for that, in the shape of the cells."""
    found = is_missing(cells.ravel())
    if str in kinds_of(cells):
        found |= np.array([isinstance(x, str) and x.strip() in NO_VALUE for x in cells.flat], bool)
    return found.reshape(cells.shape)


def padded_lists(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists as rows of one array, with None behind their ends, and which cells are behind these."""
    lists = [x if isinstance(x, (list, np.ndarray)) else [None] for x in cells]
    sizes = np.array([len(x) for x in lists], int)
    found = np.full((len(lists), max(sizes, default=0)), None, object)
    for row, x in enumerate(lists):
        found[row, : len(x)] = x
    return found, np.arange(found.shape[1]) >= sizes[:, None]
