"""Which segments a row is in, by rules that are fixed at the fit and known by a file."""

from itertools import combinations
from typing import NamedTuple, Self

import numpy as np

from calibjax._rows import (
    NamedColumns,
    column_values,
    in_one_kind,
    is_missing,
    named_columns,
)

# Numbers with more different values than this are cut at their quartiles.
_FEW_NUMBERS = 12
_N_CUTS = 4
# A column has at most so many levels, the most frequent ones.
_MOST_LEVELS = 256
# Of pairs of levels the largest are segments, if they have rows enough.
_MOST_PAIRS = 200
_LEAST_ROWS = 20
_MISSING = "missing"


class ColumnCode(NamedTuple):
    """How values of one column become codes 0, 1, …, and -1 for what the fit has not seen.

    Args:
        name: what the user calls it.
        levels: texts of categories, in the order of their codes; of numbers that are cut, empty.
        cuts: where numbers are cut, increasing; code k is between cuts k - 1 and k.
    """

    name: str
    levels: tuple[str, ...]
    cuts: tuple[float, ...]

    @classmethod
    def of(cls, name: str, values: np.ndarray, kept: np.ndarray) -> Self:
        """The code that the kept rows of a column make."""
        known = in_one_kind(values[kept & ~is_missing(values)])
        if known.dtype.kind in "iufMm" and np.unique(known).size > _FEW_NUMBERS:
            numbers = np.sort(_numbers(known))
            cuts = np.unique(numbers[(np.arange(1, _N_CUTS) * numbers.size) // _N_CUTS])
            return cls(name, (), tuple(cuts.tolist()))
        levels, count = np.unique(_texts(values)[kept], return_counts=True)
        most = np.sort(np.argsort(-count, kind="stable")[:_MOST_LEVELS])
        return cls(name, tuple(levels[most].tolist()), ())

    @property
    def n_levels(self) -> int:
        """How many codes there are; of numbers that are cut, one more for missing ones."""
        return len(self.levels) or len(self.cuts) + 2

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The code of each value, ``[n]``."""
        if self.levels:
            places = {level: k for k, level in enumerate(self.levels)}
            return np.array([places.get(text, -1) for text in _texts(values)], int)
        missing = is_missing(values)
        codes = np.full(len(values), len(self.cuts) + 1)
        codes[~missing] = np.searchsorted(self.cuts, _numbers(values[~missing]), side="right")
        return codes


class Coding(NamedTuple):
    """The segments of a map: all levels of all columns, and pairs of levels of two columns.

    Args:
        columns: the code of each column.
        pairs: column, code, other column, other code of each pair.
    """

    columns: tuple[ColumnCode, ...]
    pairs: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, groups: NamedColumns, kept: np.ndarray) -> Self:
        """The segments of the kept rows ``[n]``."""
        given = named_columns("groups", groups)
        if not given:
            raise ValueError("groups must hold at least one column, got none.")
        arrays = {name: column_values("groups", name, x, kept.size) for name, x in given.items()}
        columns = tuple(ColumnCode.of(name, x, kept) for name, x in arrays.items())
        codes = [column.codes(arrays[column.name])[kept] for column in columns]
        found = []
        for i, j in combinations(range(len(columns)), 2):
            known = (codes[i] >= 0) & (codes[j] >= 0)
            both = codes[i][known] * columns[j].n_levels + codes[j][known]
            pair, count = np.unique(both, return_counts=True)
            for p, n in zip(pair.tolist(), count.tolist(), strict=True):
                if n >= _LEAST_ROWS:
                    found.append((n, (i, p // columns[j].n_levels, j, p % columns[j].n_levels)))
        found.sort(key=lambda x: (-x[0], x[1]))
        return cls(columns, tuple(pair for _, pair in found[:_MOST_PAIRS]))

    @property
    def n_single(self) -> int:
        """How many segments are levels of one column; they come before pairs."""
        return sum(column.n_levels for column in self.columns)

    @property
    def n_segments(self) -> int:
        return self.n_single + len(self.pairs)

    def segments(self, groups: NamedColumns, n: int) -> np.ndarray:
        """The numbers of the segments of each row ``[n, J]``; `n_segments` stands for none."""
        given = named_columns("groups", groups)
        lacking = [column.name for column in self.columns if column.name not in given]
        if lacking:
            names = ", ".join(column.name for column in self.columns)
            raise ValueError(
                f"groups must have the columns of the fit, {names}, got none called {lacking[0]}."
            )
        codes = [c.codes(column_values("groups", c.name, given[c.name], n)) for c in self.columns]
        none, parts, first = self.n_segments, [], 0
        for column, code in zip(self.columns, codes, strict=True):
            parts.append(np.where(code >= 0, first + code, none))
            first += column.n_levels
        tables: dict[tuple[int, int], np.ndarray] = {}
        for number, (i, a, j, b) in enumerate(self.pairs, first):
            shape = self.columns[i].n_levels + 1, self.columns[j].n_levels + 1
            tables.setdefault((i, j), np.full(shape, none))[a, b] = number
        # The last row and column of a table, number -1, are of levels that the fit has not seen.
        parts += [table[codes[i], codes[j]] for (i, j), table in tables.items()]
        return np.stack(parts, axis=1)

    def members(self, groups: NamedColumns, kept: np.ndarray) -> np.ndarray:
        """1 for the segments of each kept row, and else 0, ``[n, n_segments]``."""
        segments = self.segments(groups, kept.size)[kept]
        found = np.zeros((len(segments), self.n_segments + 1))
        np.put_along_axis(found, segments, 1.0, axis=1)
        return found[:, :-1]


def _numbers(values: np.ndarray) -> np.ndarray:
    """Numbers, or times in seconds, as float64."""
    values = in_one_kind(values)
    if values.dtype.kind in "Mm":
        values = values.astype(f"{values.dtype.kind}8[s]").astype(np.int64)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"groups must hold numbers where the fit had numbers, got {values[:1]}.")
    return values.astype(float)


def _texts(values: np.ndarray) -> np.ndarray:
    """Levels as texts: the same for 1 and 1.0, and "missing" for what is not known."""
    missing = is_missing(values)
    known = in_one_kind(values[~missing])
    if known.dtype.kind in "iuf":
        texts = [f"{x:.17g}" for x in known.astype(float)]
    else:
        texts = [x.decode() if isinstance(x, bytes) else str(x) for x in known]
    found = np.full(len(values), _MISSING, dtype=object)
    found[~missing] = texts
    return found.astype(np.str_)
