"""Segments: sets of rows that have the same levels of some columns of groups."""

import itertools
from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._base.compile import bucket
from calibjax._base.struct import rows_of, struct
from calibjax._data.column_encoding import ColumnCode
from calibjax._data.typed_column import NamedColumns, TypedColumn, different, typed_columns
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.validity import are_whole
from calibjax._pairwise.tiles import cut

# With more levels than this, next to none of their pairs holds enough rows.
_MOST_LEVELS = 256
MISSING = "missing"


#: Columns by their names: arrays, lists or series ``[n]`` in a mapping, or a frame.
Groups = NamedColumns
#: The least variance of a count of events in a segment that is tested, and the least number of
#: rows that can have it: a probability p has p (1 - p) <= 1/4.
LEAST_VARIANCE = 2.0
LEAST_ROWS = 8
# Maximum number of segments: more names would not help a reader.
_MOST_SEGMENTS = 2**16
# Number of segments that are multiplied with rows at a time.
_TOGETHER = 256
# Minimum size of a table, so that few sizes are compiled.
_LEAST_SIZE = 16
ALL_ROWS = "all rows"


class Column(NamedTuple):
    """A column of groups.

    Args:
        name: what the user calls it.
        levels: what its levels are called, in their order.
        phrases: the levels as parts of a sentence, such as "north" or "lead time 3".
        codes: the level of each row, ``[n]``; -1 for rows that do not count.
        is_cut: whether it holds whole numbers that are cut, and that may be names.
    """

    name: str
    levels: tuple[str, ...]
    phrases: tuple[str, ...]
    codes: np.ndarray
    is_cut: bool = False


def read_columns(
    groups: Groups, kept: np.ndarray, uncut: bool = False
) -> tuple[list[Column], dict[str, str]]:
    """The columns that make segments of the kept rows ``[n]``, and why others are left out.

    If `uncut`, each value of a column is a level, and a column with too many is an error.
    """
    columns, left_out = [], {}
    for name, typed in typed_columns("groups", groups, kept.size, kept).items():
        column = _column(name, typed, kept, uncut)
        if isinstance(column, str):
            left_out[name] = column
        else:
            columns.append(column)
    if not columns or (uncut and left_out):
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise ValueError(f"groups must hold a column that makes segments, got {reasons or 'none'}.")
    return _in_phrases(columns), left_out


def _column(name: str, column: TypedColumn, kept: np.ndarray, uncut: bool) -> Column | str:
    """The column without phrases, or why it makes no segments."""
    code = ColumnCode.of(name, column, kept, **({"few": kept.size} if uncut else {}))
    codes = np.where(kept, code.codes(column), -1).astype(np.int32)
    has_missing = bool(np.any(column.missing & kept))
    if code.n_known <= 1 and not (code.n_known == 1 and has_missing) and not uncut:
        return "has one level in all rows"
    if code.n_known == kept.sum() > 2 and not uncut:
        return "is different in all rows"
    if code.n_known > _MOST_LEVELS:
        return f"has {code.n_known} levels, more than {_MOST_LEVELS}"
    levels = code.names(column, codes) + (MISSING,) * has_missing
    if column.values.dtype.kind == "O":
        return Column(name, levels, (), codes)
    words = {} if column.is_number else {"True": name, "False": f"not {name}"}
    phrases = tuple(words.get(x, f"{name} {x}") for x in levels)
    known = column.values[kept & ~column.missing]
    # As categories they would have enough rows.
    are_few = different(known).size <= min(_MOST_LEVELS, known.size / LEAST_ROWS)
    is_cut = bool(code.cuts) and known.dtype.kind in "iuf" and are_few and are_whole(known)
    return Column(name, levels, phrases, codes, is_cut)


def _in_phrases(columns: list[Column]) -> list[Column]:
    """Categories speak for themselves if no other column has them; else their column is named."""
    every = [level for column in columns if not column.phrases for level in column.levels]

    def phrase(column: Column, level: str) -> str:
        is_clear = every.count(level) == 1 and level != MISSING and not _is_number(level)
        return level if is_clear else f"{column.name} {level}"

    return [
        x if x.phrases else x._replace(phrases=tuple(phrase(x, level) for level in x.levels))
        for x in columns
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


#: Numbers of columns and of their levels, which hold together; none for all rows.
Conditions = tuple[tuple[int, int], ...]


def segments_of(columns: list[Column], kept: np.ndarray, order: int) -> dict[Conditions, int]:
    """All different sets of at least `LEAST_ROWS` kept rows with the same levels, and their sizes.

    They have up to `order` conditions.  Conditions that choose the same rows are listed once, the
    first and shortest.
    """
    codes = np.stack([column.codes[kept] for column in columns], axis=1)
    # Equal sets have equal sums of random numbers of their rows, and different sets do not.
    marks = np.random.default_rng(0).integers(2**63, size=codes.shape[0], dtype=np.uint64)
    found: dict[int, tuple[Conditions, int]] = {}
    if codes.shape[0] >= LEAST_ROWS:
        found[int(np.sum(marks))] = (), codes.shape[0]
    for size in range(1, min(order, len(columns)) + 1):
        for chosen in itertools.combinations(range(len(columns)), size):
            levels, level_of_row, counts = np.unique(
                codes[:, chosen], axis=0, return_inverse=True, return_counts=True
            )
            sums = np.zeros(len(levels), np.uint64)
            np.add.at(sums, level_of_row.reshape(-1), marks)
            for row in np.flatnonzero(counts >= LEAST_ROWS):
                conditions = tuple(zip(chosen, levels[row].tolist(), strict=True))
                found.setdefault(int(sums[row]), (conditions, int(counts[row])))
        if len(found) > _MOST_SEGMENTS:
            raise ValueError(
                f"groups must make at most {_MOST_SEGMENTS} segments, got more: take fewer columns "
                f"or levels, or order={size - 1}."
            )
    return dict(found.values())


@struct
class SegmentTable:
    """Segments as arrays, filled up so that tables of nearly one size share what is compiled.

    Args:
        columns: of each condition of each segment, ``[S, order]``.
        levels: of each condition, ``[S, order]``; -1 for no condition.
        is_segment: which are segments, and not what fills up, ``[S]``.
    """

    columns: jax.Array
    levels: jax.Array
    is_segment: jax.Array

    @property
    def size(self) -> int:
        """S, the number of segments with what fills up."""
        return self.is_segment.shape[0]

    @property
    def n_together(self) -> int:
        """How many segments are multiplied with rows at a time."""
        return min(self.size, _TOGETHER)

    def members(self, codes: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """Which rows with the codes ``[n, C]`` each segment has, as ones and zeros ``[S, n]``."""
        is_member = jnp.ones((self.size, codes.shape[0]), bool)
        for columns, levels in zip(self.columns.T, self.levels.T, strict=True):
            is_member &= (rows_of(codes.T, columns) == levels[:, None]) | (levels < 0)[:, None]
        return is_member.astype(dtype)

    def cut(self, most: int) -> "SegmentTable":
        """Tables of one size, with at most `most` segments if that is possible."""
        n_parts = self.size // self.n_together
        divisors = [k for k in range(1, n_parts + 1) if n_parts % k == 0]
        n_parts = next((k for k in divisors if self.size <= k * most), n_parts)
        return cut(self, self.size // n_parts)

    def sums(self, codes: jax.Array, values: jax.Array, factors: jax.Array) -> jax.Array:
        """The sums of values ``[n, P]`` times factors ``[n, K]`` of each segment, ``[S, P, K]``."""
        (n, size), n_factors = values.shape, factors.shape[1]

        def of_some(part: SegmentTable) -> jax.Array:
            members = part.members(codes, values.dtype)
            weights = (members[:, None] * factors.T[None]).reshape(-1, n)
            return dot(weights, values)

        sums = lax.map(of_some, cut(self, self.n_together)).reshape(self.size, n_factors, size)
        return sums.swapaxes(1, 2)


def table_of(segments: Collection[Conditions], order: int) -> SegmentTable:
    """The segments as arrays, filled up to a power of two, or to a bucket of what is together."""
    size = max(_LEAST_SIZE, 1 << (len(segments) - 1).bit_length())
    if size > _TOGETHER:
        size = bucket(-(-len(segments) // _TOGETHER)) * _TOGETHER
    columns, levels = np.zeros((size, order), np.int32), np.full((size, order), -1, np.int32)
    for row, conditions in enumerate(segments):
        for i, (column, level) in enumerate(conditions):
            columns[row, i], levels[row, i] = column, level
    return SegmentTable(*map(jax.device_put, (columns, levels, np.arange(size) < len(segments))))
