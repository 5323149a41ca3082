"""A file again, with new numbers in some of its columns."""

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from calibjax.frames import Table
from calibjax.frames.files import Text, lines_with

# Of the files that can be read, those that can be written again.
WRITTEN = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")


def with_columns_of(table: Table, rows: Table, columns: Mapping[str, np.ndarray]) -> bytes:
    """The content of the file of a table, in which some rows of columns have other numbers.

    All other values are kept, and so is the order of rows and columns.

    Args:
        table: what was read from the file.
        rows: all of its rows, or those that have new numbers.
        columns: the numbers of these rows, ``[k]``, or of an array or of lists ``[k, m]``, by names
            of the table; NaN stands for what a row lacks.
    """
    is_new, new = np.isin(table.rows, rows.rows), []
    for name, values in columns.items():
        spread = np.full((len(table), *values.shape[1:]), np.nan, values.dtype)
        spread[is_new] = values
        new.append(_series(table.series[name], spread))
    written, found = table.written, io.BytesIO()
    if isinstance(written, bytes):
        return lines_with(table, new)
    frame = pl.DataFrame(table.series)
    # Of two types of lists Polars takes the latter, and integers would cut off decimals.
    old = (pl.col(x.name).cast(x.dtype) if x.dtype.is_nested() else pl.col(x.name) for x in new)
    frame = frame.with_columns(pl.coalesce(*pair) for pair in zip(new, old, strict=True))
    if isinstance(written, Text):
        return written.content_of(frame, list(columns))
    write = frame.write_parquet if table.source.lower().endswith(".parquet") else frame.write_ipc
    write(found)
    return found.getvalue()


def _series(old: pl.Series, values: np.ndarray) -> pl.Series:
    """A new column, of the type of the old one if this is of floats, with null for NaN."""
    kind: Any = old.dtype
    if not isinstance(kind, pl.List | pl.Array):
        new = pl.Series(old.name, values, nan_to_null=True)
        return new.cast(kind) if kind.is_float() else new
    rows: list[list[float | None] | None] = []
    for row, x in zip(values.reshape(len(old), -1).tolist(), old.to_list(), strict=True):
        new_row = [None if math.isnan(value) else value for value in row[: len(x or ())]]
        rows.append(None if new_row.count(None) == len(new_row) else new_row)
    return pl.Series(old.name, rows, kind if kind.inner.is_float() else pl.List(pl.Float64))
