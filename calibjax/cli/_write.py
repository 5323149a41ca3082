"""A file again, with new numbers in some of its columns."""

import io
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from calibjax.cli._delimited import Text
from calibjax.cli._json import Objects
from calibjax.cli._table import FileTable

# Of the files that can be read, those that can be written again.
WRITTEN = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".npz")


def with_columns_of(table: FileTable, rows: FileTable, columns: Mapping[str, np.ndarray]) -> bytes:
    """The content of the file of a table, in which some rows of columns have other numbers.

    All other values are kept, and so is the order of rows and columns.  Options that a row lacks
    stay away, and its other probabilities are divided by their sum.

    Args:
        table: what was read from the file.
        rows: all of its rows, or those that have new numbers.
        columns: the numbers of these rows, ``[k]``, or of an array or of lists ``[k, m]``, by names
            of the table.
    """
    if rows is not table:
        is_new = np.isin(table.row_numbers, rows.row_numbers)
        columns = {name: _spread(x, is_new) for name, x in columns.items()}
    ending, written, found = table.path.suffix.lower(), table.written, io.BytesIO()
    if ending == ".npz":
        return _npz(table.path, columns)
    if isinstance(written, Objects):
        return written.content_of(_series(written.columns, columns))
    new = _series(table.columns, columns)
    frame = pl.DataFrame(table.columns)
    frame = frame.with_columns(pl.coalesce(x, pl.col(x.name)) for x in new)
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


def _series(old: Mapping[str, pl.Series], columns: Mapping[str, np.ndarray]) -> list[pl.Series]:
    """New columns, of the types of the old ones if these are floats; null is what a row lacks."""
    names, values = list(columns), np.column_stack(list(columns.values()))
    kind: Any = old[names[0]].dtype
    has_lists = isinstance(kind, pl.List | pl.Array)
    if has_lists:
        lists = [x or [] for x in old[names[0]].to_list()]
        cells = np.array(list(itertools.zip_longest(*lists)), float).T
        is_there = ~np.isnan(cells[:, : values.shape[1]])
    else:
        is_there = ~np.column_stack([old[name].is_null() for name in names])
    values, lacks = np.where(is_there, values, np.nan), ~is_there.all(axis=1)
    values[lacks] /= np.nansum(values[lacks], axis=1, keepdims=True)
    if has_lists:
        rows: list[list[float | None] | None] = []
        for row, x in zip(values.tolist(), lists, strict=True):
            new_row = [None if math.isnan(value) else value for value in row[: len(x)]]
            rows.append(None if new_row.count(None) == len(new_row) else new_row)
        return [pl.Series(names[0], rows, kind if kind.inner.is_float() else pl.List(pl.Float64))]
    new = [pl.Series(name, x, nan_to_null=True) for name, x in zip(names, values.T, strict=True)]
    return [x.cast(old[x.name].dtype) if old[x.name].dtype.is_float() else x for x in new]


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
