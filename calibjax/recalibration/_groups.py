"""Groups of rows as segments: levels of columns, and pairs of levels of two columns."""

from itertools import combinations
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
from jax.typing import ArrayLike

from calibjax._data.column_encoding import ColumnCode
from calibjax._data.typed_column import NamedColumns, TypedColumn, named_columns, typed_columns
from calibjax.recalibration._probability_maps import Numbers

# Maximum number of levels of a column; the most frequent are kept.
_MOST_LEVELS = 256
# Maximum number of pairs of levels that are segments, and their minimum number of rows.
_MOST_PAIRS = 200
_LEAST_ROWS = 20


class Coding(NamedTuple):
    """The segments of a map: all levels of all columns, and pairs of levels of two columns.

    Args:
        columns: the code of each column.
        pairs: column, code, other column and other code of each pair.
    """

    columns: tuple[ColumnCode, ...]
    pairs: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, groups: NamedColumns, kept: np.ndarray) -> Self:
        """The segments of the kept rows ``[n]``."""
        typed = typed_columns("groups", groups, kept.size, kept)
        if not typed:
            raise ValueError("groups must hold at least one column, got none.")
        columns = tuple(_most_frequent(name, x, kept) for name, x in typed.items())
        codes = [column.codes(typed[column.name])[kept] for column in columns]
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
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def n_single(self) -> int:
        """The number of segments that are levels of one column; they precede pairs."""
        return sum(column.n_levels for column in self.columns)

    @property
    def n_segments(self) -> int:
        return self.n_single + len(self.pairs)

    def segments(self, groups: NamedColumns, n: int) -> np.ndarray:
        """The segments of each row ``[n, J]``; `n_segments` means no segment."""
        given = named_columns("groups", groups)
        lacking = [name for name in self.names if name not in given]
        if lacking:
            raise ValueError(
                f"groups must have the columns of the fit, {', '.join(self.names)}, got none "
                f"called {lacking[0]}."
            )
        typed = typed_columns("groups", {name: given[name] for name in self.names}, n)
        codes = [x.codes(typed[x.name]) for x in self.columns]
        none, parts, first = self.n_segments, [], 0
        for column, code in zip(self.columns, codes, strict=True):
            parts.append(np.where(code >= 0, first + code, none))
            first += column.n_levels
        tables: dict[tuple[int, int], np.ndarray] = {}
        for number, (i, a, j, b) in enumerate(self.pairs, first):
            shape = self.columns[i].n_levels + 1, self.columns[j].n_levels + 1
            tables.setdefault((i, j), np.full(shape, none))[a, b] = number
        # The last row and column of a table, index -1, are for levels unknown to the fit.
        parts += [table[codes[i], codes[j]] for (i, j), table in tables.items()]
        return np.stack(parts, axis=1)

    def members(self, groups: NamedColumns, kept: np.ndarray) -> np.ndarray:
        """1 for the segments of each kept row, else 0, ``[n, n_segments]``."""
        segments = self.segments(groups, kept.size)[kept]
        found = np.zeros((len(segments), self.n_segments + 1))
        np.put_along_axis(found, segments, 1.0, axis=1)
        return found[:, :-1]


def _most_frequent(name: str, column: TypedColumn, kept: np.ndarray) -> ColumnCode:
    """The code of a column, with its most frequent levels if it has many."""
    code = ColumnCode.of(name, column, kept)
    if len(code.levels) <= _MOST_LEVELS:
        return code
    count = np.bincount(code.codes(column)[kept])[: len(code.levels)]
    most = np.sort(np.argsort(-count, kind="stable")[:_MOST_LEVELS])
    return code._replace(levels=tuple(code.levels[k] for k in most))


def sums_of_segments(xp: ModuleType, table: Numbers, segments: ArrayLike) -> Any:
    """Sums of tables ``[S]`` or ``[c, S]`` over segments ``[n, J]``: ``[n]`` or ``[n, c]``."""
    table = xp.asarray(table)
    with_none = xp.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, 1)])
    return xp.sum(with_none[..., xp.asarray(segments)], axis=-1).T
