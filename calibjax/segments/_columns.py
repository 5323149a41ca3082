"""Columns of groups: which level of each column a row has, and what the level is called."""

from typing import NamedTuple

import numpy as np

from calibjax._rows import (
    NamedColumns,
    column_values,
    in_one_kind,
    is_missing,
    named_columns,
    text_of_time,
)

# Numbers with more different values than this are cut at their quartiles.
_FEW_NUMBERS = 12
_N_CUTS = 4
# With more levels than this, next to none of their pairs holds enough rows.
_MOST_LEVELS = 256
MISSING = "missing"


#: Columns by their names: arrays, lists or series ``[n]`` in a mapping, or a frame.
Groups = NamedColumns


class Column(NamedTuple):
    """A column of groups.

    Args:
        name: what the user calls it.
        levels: what its levels are called, in their order.
        phrases: the levels as parts of a sentence, such as "north" or "lead time 3".
        codes: the level of each row, ``[n]``; -1 for rows that do not count.
    """

    name: str
    levels: tuple[str, ...]
    phrases: tuple[str, ...]
    codes: np.ndarray


def read_columns(groups: Groups, kept: np.ndarray) -> tuple[list[Column], dict[str, str]]:
    """The columns that make segments of the kept rows ``[n]``, and why others are left out."""
    columns, left_out = [], {}
    for name, given in named_columns("groups", groups).items():
        column = _column(name, column_values("groups", name, given, kept.size), kept)
        if isinstance(column, str):
            left_out[name] = column
        else:
            columns.append(column)
    if not columns:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise ValueError(f"groups must hold a column that makes segments, got {reasons or 'none'}.")
    return _in_phrases(columns), left_out


def _column(name: str, values: np.ndarray, kept: np.ndarray) -> Column | str:
    """The column without phrases, or why it makes no segments."""
    missing = is_missing(values)
    present = kept & ~missing
    known = in_one_kind(values[present])
    is_number = known.dtype.kind in "iufMm"
    different, places = np.unique(known, return_inverse=True)
    if different.size <= 1 and not (different.size == 1 and np.any(missing & kept)):
        return "has one level in all rows"
    if is_number and different.size > _FEW_NUMBERS:
        places, levels = _cut(known)
    elif different.size == kept.sum() > 2:
        return "is different in all rows"
    elif different.size > _MOST_LEVELS:
        return f"has {different.size} levels, more than {_MOST_LEVELS}"
    else:
        levels = [_text(x) for x in different]
    codes = np.full(values.size, -1, np.int32)
    codes[present] = places
    if np.any(missing & kept):
        codes[missing & kept] = len(levels)
        levels.append(MISSING)
    phrases = _phrases_of_truth(name, levels) if known.dtype.kind == "b" else []
    if is_number:
        phrases = [f"{name} {level}" for level in levels]
    return Column(name, tuple(levels), tuple(phrases), codes)


def _phrases_of_truth(name: str, levels: list[str]) -> list[str]:
    words = {"True": name, "False": f"not {name}", MISSING: f"{name} {MISSING}"}
    return [words[level] for level in levels]


def _in_phrases(columns: list[Column]) -> list[Column]:
    """Categories speak for themselves if no other column has them; else their column is named."""
    every = [level for column in columns if not column.phrases for level in column.levels]

    def phrase(column: Column, level: str) -> str:
        is_clear = every.count(level) == 1 and level != MISSING and not _is_number(level)
        return level if is_clear else f"{column.name} {level}"

    return [
        column
        if column.phrases
        else column._replace(phrases=tuple(phrase(column, level) for level in column.levels))
        for column in columns
    ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Which quarter of the numbers each number is in, and from where to where a quarter goes."""
    ordered = np.sort(values)
    starts = np.unique(ordered[(np.arange(1, _N_CUTS) * ordered.size) // _N_CUTS])
    places = np.searchsorted(starts, values, side="right")
    used, places = np.unique(places, return_inverse=True)
    quarters = (values[places == k] for k in range(used.size))
    return places, [f"{_text(x.min())} to {_text(x.max())}" for x in quarters]


def _text(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return text_of_time(value)
    return value.decode() if isinstance(value, bytes) else str(value)
