"""Columns of numbers and of labels; errors name the table, the column and the row."""

import abc
import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Never, Self

import numpy as np

from calibjax._base.struct import on_host
from calibjax._base.text import listed
from calibjax._data import NO_VALUE, text_of
from calibjax._data import is_missing as is_missing_item
from calibjax.frames._array_conversion import as_floats

_TRUE, _FALSE = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0")


class Table(abc.ABC):
    """Columns by their names: of a file, of a frame, or of arrays with named dimensions.

    A subclass says what the columns are called and what is in their cells; what these mean is read
    here, once for all of them.
    """

    @property
    @abc.abstractmethod
    def source(self) -> str:
        """What errors call the table, such as the path of a file."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """The names of the columns."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of rows."""

    @abc.abstractmethod
    def _cells(self, name: str) -> np.ndarray:
        """A column that is there, ``[n]`` or ``[n, m]``.

        Texts, lists, and what else NumPy has no dtype for, are objects.  Missing values are None,
        NaN, NaT or NA of pandas.
        """

    @abc.abstractmethod
    def _kept(self, kept: np.ndarray) -> Self:
        """Some of the rows, which errors call as before."""

    @abc.abstractmethod
    def option(self, name: str, value: object = None) -> str:
        """How users write an argument, such as ``level=0.1`` or ``--level 0.1``."""

    @abc.abstractmethod
    def say(self, message: str) -> None:
        """Tells users something that is no error."""

    @property
    @abc.abstractmethod
    def row_numbers(self) -> np.ndarray:
        """The number of each row, which it keeps when others are left out."""

    @property
    def row_names(self) -> np.ndarray:
        """What each row is called, among the rows of all sources."""
        return self.row_numbers

    def cell_name(self, name: str, row: int) -> str:
        """What errors call a row of a column."""
        return f"{self.source}, column {name}, row {self.row_numbers[row]}"

    def names_within(self, name: str) -> list[Any] | None:
        """What the columns of an array ``[n, m]`` are called; None if nothing says it."""
        return None

    def check_name(self, name: str) -> None:
        """An error if there is no column of this name."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, 2)
            if any(x.startswith(f"{name}.") for x in self.names):
                near = [f"'{name}.*', for the keys of an object"]
            hint = f"; is it {' or '.join(near)}?" if near else "."
            raise ValueError(
                f"{self.source}: there is no column {name}, only {listed(self.names)}{hint}"
            )

    def cells(self, name: str) -> np.ndarray:
        """A column; an error if there is none of this name."""
        self.check_name(name)
        return self._cells(name)

    def one_value(self, name: str) -> np.ndarray:
        """The cells ``[n]`` of a column that has one value in each row."""
        cells = self.cells(name)
        if cells.ndim > 1 or has_lists(cells):
            raise ValueError(f"{self.source}, column {name}: expected one value in each row.")
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
        present = np.ones(len(self), bool)
        texts = {x for x in NO_VALUE if x not in but}
        words, counts = "", {}
        for name in names:
            cells = self.cells(name)
            if len(cells) != len(self):
                raise ValueError(
                    f"{self.source}: expected columns of the same length to choose rows of."
                )
            found = is_missing(cells)
            if cells.dtype == object:
                is_text = are_empty(cells, texts) & ~found
                if is_text.any() and np.isnan(as_floats(cells[~(found | is_text)])).any():
                    # Among names it may be one, such as that of Namibia.
                    taken = sorted({x.strip() or "an empty text" for x in cells[is_text]})
                    words += f"; of {name}, {' and '.join(taken)} is taken for missing"
                found |= is_text
            found &= ~absent.get(name, np.False_)
            present &= ~found
            if found.any():
                counts[name] = int(found.sum())
        kept = self._kept(present)
        if counts:
            missing = listed([f"{count} of {name}" for name, count in counts.items()])
            words = f" (missing are {missing}){words}"
        self.say(
            f"{self.source}: {len(kept)} of {len(self)} rows are used, without missing values"
            f"{words}."
        )
        return kept

    def check_present(self, name: str, expected: str, absent: Any = np.False_) -> None:
        """An error at the first row without a value, where something is not absent."""
        self.check(name, ~is_missing(self.cells(name)) | absent, expected)

    def truths(self, name: str) -> np.ndarray:
        """A column of truth values ``[n]``: true and false, yes and no, or 1 and 0."""
        words = [text_of(x).strip().lower() for x in self.one_value(name)]
        self.check(name, np.isin(words, [*_TRUE, *_FALSE]), "true or false")
        return np.isin(words, _TRUE)

    def texts(self, name: str) -> np.ndarray:
        """A column as text, without missing values."""
        cells = self.one_value(name)
        self.check_present(name, "a value")
        return np.array([text_of(x) for x in cells], dtype=str)

    def labels(self, name: str) -> np.ndarray:
        """A column without missing values; all but floats as text, which is exact."""
        cells = self.cells(name)
        dropping = self.option("drop_missing", True)
        self.check(name, ~is_missing(cells), f"a label ({dropping} leaves out rows without one)")
        if cells.dtype.kind == "f" or cells.ndim > 1:
            return cells
        if has_lists(cells):
            raise ValueError(f"{self.source}, column {name}: expected labels, got lists.")
        return np.array([text_of(x) for x in cells], dtype=str)

    def numbers(self, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """A column of finite numbers ``[n]``, and 0 where they are absent, in float64."""
        values = self._values(name, absent)
        if values.ndim > 1 and values.shape[1] > 1:
            raise ValueError(
                f"{self.source}, column {name}: expected one number in each row, got "
                f"{values.shape[1]}."
            )
        return values.reshape(len(values))

    def array(self, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """The numbers of one array of two dimensions, ``[n, m]``.

        Args:
            name: the column.
            absent: which numbers rows do not have, ``[n, m]``, which are zeros then; None if
                all have the same.
        """
        values = self._values(name, absent)
        if values.ndim == 2:
            return values
        raise ValueError(
            f"{self.source}, column {name}: expected a pattern with one *, such as '{name}_*', or "
            "an array of two dimensions; pivot a table with a row for each member or class first."
        )

    def _values(self, name: str, absent: np.ndarray | None = None) -> np.ndarray:
        """Finite numbers ``[n]`` or ``[n, m]``."""
        cells = self.cells(name)
        if has_lists(cells):
            cells = self._array_of_lists(name, cells, absent is not None)
        if absent is not None:
            cells = np.where(absent, 0, cells)
        if cells.ndim > 2 or cells.dtype.kind not in "biufO" or _has_dates(cells):
            shape = f"an array of shape {list(cells.shape)}" if cells.ndim > 2 else ""
            came = shape or ("dates" if cells.dtype.kind in "MO" else str(cells.dtype))
            raise ValueError(f"{self.source}, column {name}: expected numbers, got {came}.")
        texts = cells[~is_missing(cells)] if cells.ndim == 1 else cells
        are_percent = [isinstance(x, str) and x.strip().endswith("%") for x in texts.flat]
        if are_percent and all(are_percent):
            shown = [x.strip()[:-1] if isinstance(x, str) else x for x in cells.flat]
            values = as_floats(np.array(shown, object)).reshape(cells.shape) / 100
            self.say(f"{self.source}, column {name}: percentages are read as shares, 50% as 0.5.")
        else:
            values = as_floats(cells)
        # A number that is too large for the dtype of jax becomes infinite, which is an error below.
        with np.errstate(over="ignore"):
            finite = np.isfinite(on_host(values))
        if not finite.all():
            words = "a finite number"
            if cells.dtype == object and any(isinstance(x, str) and "," in x for x in cells.flat):
                if cells.ndim == 1:
                    self._check_decimals(name, cells)
                words += ", whose decimals come after a point"
            elif any(are_percent):
                words += ", with a percent sign in all rows or in none"
            elif are_empty(cells).all():
                words += " (no row has one)"
            elif are_empty(cells).any():
                words += f" ({self.option('drop_missing', True)} leaves out rows without one)"
            self.check(name, finite if values.ndim == 1 else finite.all(axis=1), words)
        return values

    def _check_decimals(self, name: str, cells: np.ndarray) -> None:
        """An error at a text that is no number, if it is why commas of others are no decimals."""
        points = np.array([x.replace(",", ".") if isinstance(x, str) else x for x in cells], object)
        is_number = np.isfinite(as_floats(points)) | is_missing(cells)
        if 2 * is_number.sum() > len(cells):
            words = "a finite number, as in other rows, with commas before decimals"
            self.check(name, is_number, words)

    def _array_of_lists(self, name: str, cells: np.ndarray, filled: bool) -> np.ndarray:
        """Lists of numbers as the rows of an array."""
        valid = np.array([isinstance(x, (list, np.ndarray)) for x in cells], bool)
        self.check(name, valid, "a list of numbers")
        sizes = np.array([len(x) for x in cells])
        if not filled and len(cells):
            words = f"{sizes[0]} numbers as in the first row"
            self.check(name, sizes == sizes[0], words, [f"{size} numbers" for size in sizes])
        return as_floats(padded_lists(cells)[0])

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
            for name in self.names
            if name.startswith(start) and name.endswith(end) and name != target
            if len(name) > len(start + end)
        ]
        if len(names) < 2:
            raise ValueError(
                f"{self.source}: expected at least two columns {pattern}, got "
                f"{listed(names) or 'none'}; the columns are {listed(self.names)}."
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
        value = (self.cells(name) if got is None else got)[row]
        came = "nothing" if value is None else text_of(value) or "an empty text"
        self.fail(name, row, f"expected {expected}, got {came}.")

    def fail(self, name: str, row: int, message: str) -> Never:
        """An error at a row, which is counted from 0 here and as users count it in the message."""
        raise ValueError(f"{self.cell_name(name, row)}: {message}")


def is_missing(cells: np.ndarray) -> np.ndarray:
    """Which rows miss a value, ``[n]``: None, NaN, NaT or NA of pandas, also one in a list."""
    if cells.dtype == object:
        found = np.array([_is_none(x) for x in cells.flat], bool).reshape(cells.shape)
    else:
        found = cells != cells
    return np.asarray(found.any(axis=tuple(range(1, found.ndim))))


def _is_none(value: object) -> bool:
    if isinstance(value, (list, np.ndarray)):
        return any(map(_is_none, value))
    return not isinstance(value, (str, dict)) and is_missing_item(value)


def are_empty(cells: np.ndarray, texts: Collection[str] = NO_VALUE) -> np.ndarray:
    """Which cells miss a value, or have a text that stands for that, in the shape of the cells."""
    found = is_missing(cells.ravel())
    if cells.dtype == object:
        found |= np.array([isinstance(x, str) and x.strip() in texts for x in cells.flat], bool)
    return found.reshape(cells.shape)


def padded_lists(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists as rows of one array, with None behind their ends, and which cells are behind these."""
    lists = [x if isinstance(x, (list, np.ndarray)) else [None] for x in cells]
    sizes = np.array([len(x) for x in lists], int)
    found = np.full((len(lists), max(sizes, default=0)), None, object)
    for row, x in enumerate(lists):
        found[row, : len(x)] = x
    return found, np.arange(found.shape[1]) >= sizes[:, None]


def as_numbers(cells: np.ndarray) -> np.ndarray:
    """Texts of numbers as numbers, with NaN where they are missing, and all else as it is."""
    if cells.dtype != object or cells.ndim > 1:
        return cells
    if not all(isinstance(x, str) or _is_none(x) for x in cells):
        return cells
    numbers = as_floats(cells)
    return numbers if are_empty(cells[np.isnan(numbers)]).all() else cells


def stems(pattern: str, names: Sequence[str]) -> list[str]:
    """What the * of a pattern stands for in each name."""
    start, end = _halves(pattern)
    return [name[len(start) : len(name) - len(end)] for name in names]


def _halves(pattern: str) -> tuple[str, str]:
    start, _, end = pattern.partition("*")
    if "*" in end:
        raise ValueError(f"A pattern of columns must have one *, got {pattern}.")
    return start, end


def has_lists(cells: np.ndarray) -> bool:
    is_objects = cells.dtype == object and cells.ndim == 1
    return is_objects and any(isinstance(x, (list, np.ndarray, dict)) for x in cells)


def _has_dates(cells: np.ndarray) -> bool:
    return cells.dtype == object and any(hasattr(x, "isoformat") for x in cells.flat)
