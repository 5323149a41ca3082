"""Codes of the values of a column: its levels, or ranges of its numbers, as a fit has seen them."""

import datetime
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from calibjax._data.typed_column import NO_VALUE, TypedColumn, different, indices_in, typed_column
from calibjax._numbers.validity import are_whole

# What whole numbers are called that name things.  Values alone do not say it: hours of a panel are
# as regular as its shops, and capital gains are as far apart as postal codes.
_NAMES_THINGS = re.compile(r"(.*[^A-Za-z])?(?i:id|code|zip|fips)|.*[a-z]I[Dd]|(?i:zip|post)code")


class ColumnCode(NamedTuple):
    """How values of a column become codes 0, 1, …, by rules that are made at a fit.

    Other rows have the codes of equal values, whatever their types: see `indices_in`.  Texts are
    read as numbers or times if the fit had these, and values are their texts if it had texts.

    Args:
        name: what the user calls it.
        dtype: of the values, as in `TypedColumn`.
        levels: the values of the codes in ascending order, times in microseconds since 1970; none
            if numbers are cut.
        cuts: where they are cut, increasing; code k is between cuts k - 1 and k.
    """

    name: str
    dtype: str
    levels: tuple[bool | int | float | str, ...]
    cuts: tuple[int | float, ...]

    @classmethod
    def of(
        cls, name: str, column: TypedColumn, kept: np.ndarray, few: int = 12, n_bins: int = 4
    ) -> Self:
        """The code that kept rows make; more different numbers than `few` are cut at quantiles.

        Whole numbers of columns such as store_id are names, and not cut.
        """
        known = column.values[kept & ~column.missing]
        levels, dtype = different(known), str(known.dtype)
        is_id = _NAMES_THINGS.fullmatch(name) and known.dtype.kind in "iuf" and are_whole(levels)
        if not column.is_number or levels.size <= few or is_id:
            return cls(name, dtype, tuple(_plain(levels)), ())
        starts = np.sort(known)[(np.arange(1, n_bins) * known.size) // n_bins]
        indices = np.unique(np.searchsorted(levels, starts))
        # If most rows have the least value, all others are a bin.
        indices = indices[indices > 0] if indices.any() else np.array([1])
        pairs = zip(_plain(levels[indices - 1]), _plain(levels[indices]), strict=True)
        return cls(name, dtype, (), tuple(_between(a, b) for a, b in pairs))

    @property
    def n_known(self) -> int:
        """How many codes known values have."""
        return len(self.levels) or (len(self.cuts) + 1 if self.cuts else 0)

    @property
    def n_levels(self) -> int:
        """How many codes there are: one more for missing values."""
        return self.n_known + 1

    def codes(self, column: TypedColumn) -> np.ndarray:
        """The code of each value ``[n]``: the last for missing ones, -1 of those not seen before.

        Raises:
            TypeError, ValueError: the values are of another kind than those of the fit.
        """
        codes = np.full(column.values.size, -1)
        if self.n_known and not column.missing.all():
            column = self._as_at_the_fit(column)
            values = column.values
            if self.cuts:
                if values.dtype.kind == "M":
                    values = values.view(np.int64)
                elif values.dtype.kind == "f":
                    values = values.astype(float)
                # Numbers of Python, since no dtype holds integers on both sides of 2^63.
                codes = np.sum([values >= cut for cut in self.cuts], axis=0)
            else:
                codes = indices_in(np.array(self.levels, self.dtype), values)
        codes[column.missing] = self.n_known
        return codes

    def names(self, column: TypedColumn, codes: np.ndarray) -> tuple[str, ...]:
        """What the known codes of the rows of the fit are called: levels, or ranges of numbers."""
        if self.levels:
            firsts = [int(np.argmax(codes == k)) for k in range(self.n_known)]
            short = tuple(map(column.text, firsts))
            return short if len({*short}) == len(short) else tuple(column.texts()[firsts])
        rows = [np.flatnonzero(codes == k) for k in range(self.n_known)]
        ends = [(x[np.argmin(column.values[x])], x[np.argmax(column.values[x])]) for x in rows]
        return tuple(f"{column.text(a)} to {column.text(b)}" for a, b in ends)

    def _as_at_the_fit(self, column: TypedColumn) -> TypedColumn:
        """The column with values of the kind that the fit had."""
        words, read = _KINDS[np.dtype(self.dtype).kind]
        kind, _ = _KINDS[column.values.dtype.kind]
        if words == kind:
            return column
        if words == "texts":
            texts: Any = column.texts()
            if column.values.dtype.kind == "f":  # beside missing values the code 1 may be 1.0
                known = set(self.levels)
                texts[:] = [x if x in known else x.removesuffix(".0") for x in texts]
            return column._replace(values=texts)
        value = column.text(np.argmin(column.missing))
        expected = f"{column.name} must hold {words}, as at the fit, got"
        if kind != "texts":
            raise TypeError(f"{expected} {value!r}.")
        texts = [*dict.fromkeys(column.values[~column.missing].tolist())]
        try:
            items = [None if x.strip() in NO_VALUE else read(value := x) for x in texts]
        except ValueError:
            raise ValueError(f"{expected} {value!r}.") from None
        found = typed_column(column.name, items, len(items))
        indices = indices_in(np.array(texts, object), column.values)
        missing = column.missing | found.missing[indices]
        return column._replace(values=found.values[indices], missing=missing)


def _number_of(text: str) -> float:
    word = text.strip().lower()
    if word in ("false", "true"):
        return word == "true"
    if "_" in word:  # Python reads 1_000 as a number, and no other program does.
        raise ValueError
    return int(word) if word.lstrip("+-").isdecimal() else float(word)


def _time_of(text: str) -> datetime.datetime:
    """A time in a form of ISO 8601; a year or a month, as names of levels are, is its start."""
    rest = {len("2020"): "-01-01", len("2020-01"): "-01"}.get(len(text), "")
    return datetime.datetime.fromisoformat(text + rest)


# Texts of other rows are read by the kind that the column had at the fit.
_KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys("biuf", ("numbers", _number_of)),
    "M": ("times", _time_of),
    "O": ("texts", str),
}


def _plain(values: np.ndarray) -> Any:
    """Values of Python; times are integers."""
    return (values.view(np.int64) if values.dtype.kind == "M" else values).tolist()


def _between(a: Any, b: Any) -> Any:
    """The middle of two numbers, above a: what rounding moves stays on its side."""
    if isinstance(a, int):
        return a + (b - a + 1) // 2
    middle = a / 2 + b / 2
    return middle if a < middle < b else min(b, np.finfo(float).max)
