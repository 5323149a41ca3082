"""A file again, with new numbers in some of its columns."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from calibjax.frames import Table
from calibjax.frames.files import Text, lines_with

# Of the files that can be read, those that can be written again.
WRITTEN = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".npz")


def with_columns_of(table: Table, rows: Table, columns: Mapping[str, np.ndarray]) -> bytes:
    """The content of the file of a table, in which some rows of columns have other numbers.

    All other values are kept, and so is the order of rows and columns.

    Args:
        table: what was read from the file.
        rows: all of its rows, or those that have new numbers.
        columns: the numbers of these rows, ``[k]``, or of an array or of lists ``[k, m]``, by names
            of the table; NaN stands for what a row lacks.
    """
    if rows is not table:
        is_new = np.isin(table.rows, rows.rows)
        columns = {name: _spread(x, is_new) for name, x in columns.items()}
    ending, written, found = Path(table.source).suffix.lower(), table.written, io.BytesIO()
    if ending == ".npz":
        return _npz(Path(table.source), columns)
    new = [_series(table.series[name], x) for name, x in columns.items()]
    if isinstance(written, bytes):
        return lines_with(table, new)
    frame = pl.DataFrame(table.series)
    # Of two types of lists Polars takes the latter, and integers would cut off decimals.
    old = (pl.col(x.name).cast(x.dtype) if x.dtype.is_nested() else pl.col(x.name) for x in new)
    frame = frame.with_columns(pl.coalesce(*pair) for pair in zip(new, old, strict=True))
    if isinstance(written, Text):
        return written.content_of(frame, list(columns))
    write = frame.write_parquet if ending == ".parquet" else frame.write_ipc
    write(found)
    return found.getvalue()


def _spread(values: np.ndarray, is_new: np.ndarray) -> np.ndarray:
    """The values where rows are new, and NaN elsewhere."""
    found = np.full((len(is_new), *values.shape[1:]), np.nan, values.dtype)
    found[is_new] = values
    return found


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


def _npz(path: Path, columns: Mapping[str, np.ndarray]) -> bytes:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    for name, values in columns.items():
        old = arrays[name]
        new = values.reshape(old.shape).astype(old.dtype if old.dtype.kind == "f" else values.dtype)
        arrays[name] = np.where(np.isnan(new), old, new)
    found = io.BytesIO()
    np.savez(found, **arrays)
    return found.getvalue()
