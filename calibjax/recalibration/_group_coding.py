"""Which segments a row is in, by rules that are fixed at the fit and known by a file."""

from itertools import combinations
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import static, struct
from calibjax._data import ColumnCode, NamedColumns, TypedColumn, named_columns, typed_column
from calibjax.recalibration._beta_and_spline_maps import from_logits, log_odds
from calibjax.recalibration._probability_maps import Numbers

# A column has at most so many levels, the most frequent ones.
_MOST_LEVELS = 256
# Of pairs of levels the largest are segments, if they have rows enough.
_MOST_PAIRS = 200
_LEAST_ROWS = 20


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
        typed = {name: _typed(name, x, kept.size, kept) for name, x in given.items()}
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
        codes = [x.codes(_typed(x.name, given[x.name], n)) for x in self.columns]
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


def _typed(name: str, given: object, n: int, kept: np.ndarray | bool = True) -> TypedColumn:
    return typed_column(f"column {name} of groups", given, n, kept)


def _most_frequent(name: str, column: TypedColumn, kept: np.ndarray) -> ColumnCode:
    """The code of a column, with its most frequent levels if it has many."""
    code = ColumnCode.of(name, column, kept)
    if len(code.levels) <= _MOST_LEVELS:
        return code
    count = np.bincount(code.codes(column)[kept])[: len(code.levels)]
    most = np.sort(np.argsort(-count, kind="stable")[:_MOST_LEVELS])
    return code._replace(levels=tuple(code.levels[k] for k in most))


#: Beyond so many standard deviations of logits a slope goes on no further.
FARTHEST = 4.0
#: Of a map of the unit line in a segment, beside that of all rows.
LEAST_SLOPE = 0.2


@struct
class GroupCurve:
    """logit q = l + sum_s (a_s + b_s x) over the segments s of a row, with l = logit p.

    x = (l - centre) / spread, cut off at -4 and 4.  Of more than two classes each one has its
    numbers, and rows are divided by their sums.  Of a map of the unit line l are the logits of G at
    its levels, with centre 0 and spread 1; b is in logits then, without ends.

    Args:
        shifts: a of each curve and segment, ``[c, S]``.
        slopes: b, ``[c, S]``.
        centres: of each curve, ``[c]``.
        spreads: of each curve, positive, ``[c]``.
        coding: what the segments are.
    """

    shifts: Numbers
    slopes: Numbers
    centres: Numbers
    spreads: Numbers
    coding: Coding = static()

    def __call__(self, probs: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
        """New probabilities of rows in segments ``[n, J]``; the number S stands for none."""
        raised = jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)
        logits = log_odds(jnp, raised)
        x = scaled_logits(logits, self.centres, self.spreads)
        a, b = (_sums_of(jnp.asarray(table), segments) for table in (self.shifts, self.slopes))
        # Options that a row does not have stay away.
        return jnp.where(probs > 0, from_logits(logits + a + b * x), 0.0)

    def of_line(self, g: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
        """A map of the unit line at levels, ``[n, K]``, after what segments move it by."""
        raised = jnp.clip(g, jnp.finfo(g.dtype).tiny, 1 - jnp.finfo(g.dtype).epsneg)
        logits = jnp.log(raised) - jnp.log1p(-raised)
        a, b = (_sums_of(jnp.asarray(table), segments) for table in (self.shifts, self.slopes))
        # A map rises, whatever the segments of a row add up to.
        return jax.nn.sigmoid(a + jnp.maximum(1 + b, LEAST_SLOPE) * logits)


def scaled_logits(logits: jax.Array, centres: Numbers, spreads: Numbers) -> jax.Array:
    """Logits ``[n, c]`` in units of their spread."""
    x = (logits - jnp.asarray(centres)[None]) / jnp.asarray(spreads)[None]
    return jnp.clip(x, -FARTHEST, FARTHEST)


def _sums_of(table: jax.Array, segments: np.ndarray | jax.Array) -> jax.Array:
    """Sums over the segments of each row, of numbers ``[c, S]``: ``[n, c]``."""
    with_none = jnp.concatenate([table, jnp.zeros_like(table[:, :1])], axis=1)
    return jnp.sum(with_none[:, jnp.asarray(segments)], axis=2).T
