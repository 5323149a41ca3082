"""Columns of groups: which level of each column a row has, and what the level is called."""

from typing import NamedTuple

import numpy as np

from calibjax._rows import ColumnCode, NamedColumns, TypedColumn, named_columns, typed_column

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
        typed = typed_column(f"column {name} of groups", given, kept.size, kept)
        column = _column(name, typed, kept)
        if isinstance(column, str):
            left_out[name] = column
        else:
            columns.append(column)
    if not columns:
        reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise ValueError(f"groups must hold a column that makes segments, got {reasons or 'none'}.")
    return _in_phrases(columns), left_out


def _column(name: str, column: TypedColumn, kept: np.ndarray) -> Column | str:
    """The column without phrases, or why it makes no segments."""
    code = ColumnCode.of(name, column, kept)
    codes = np.where(kept, code.codes(column), -1).astype(np.int32)
    has_missing = bool(np.any(column.missing & kept))
    if code.n_known <= 1 and not (code.n_known == 1 and has_missing):
        return "has one level in all rows"
    if code.n_known == kept.sum() > 2:
        return "is different in all rows"
    if code.n_known > _MOST_LEVELS:
        return f"has {code.n_known} levels, more than {_MOST_LEVELS}"
    levels = code.names(column, codes) + (MISSING,) * has_missing
    if column.values.dtype.kind == "O":
        return Column(name, levels, (), codes)
    words = {} if column.is_number else {"True": name, "False": f"not {name}"}
    return Column(name, levels, tuple(words.get(x, f"{name} {x}") for x in levels), codes)


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
