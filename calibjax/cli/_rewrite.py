"""A file again, with new numbers in some of its columns."""

import io
import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from calibjax.cli._read import Table, csv_header

Columns = Mapping[str, np.ndarray]


def with_columns_of(table: Table, columns: Columns) -> bytes:
    """The content of the file of a table, in which columns have other numbers.

    All other columns and all rows stay as they are, and so does the order of both.

    Args:
        table: what was read from the file.
        columns: numbers ``[n]``, or of an npz file also ``[n, m]``, by names of the table.
    """
    writers = {".csv": _csv, ".npz": _npz, ".parquet": _parquet}
    return writers[table.path.suffix.lower()](table, columns)


# A field as it is written, with its quotes, and what ends it.
_FIELD = re.compile(r'([^",\r\n]*(?:"(?:[^"]|"")*"[^",\r\n]*)*)(,|\r\n|\n|\r|$)')


def _csv(table: Table, columns: Columns) -> bytes:
    """Of the text only the new numbers are replaced: quotes and line ends are kept."""
    content = table.path.read_bytes()
    encoding = "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"
    names = csv_header(table.path)[0]
    places = {names.index(name): values for name, values in columns.items()}
    assert table.rows is not None
    # The row of a table that starts at each line of the file.
    rows = {int(line): row for row, line in enumerate(table.rows)}
    found, line, place, row = [], 1, 0, rows.get(1)
    for text, end in _FIELD.findall(content.decode(encoding)):
        line += text.count("\n") + end.count("\n")
        is_new = row is not None and place in places
        found += [str(places[place][row]) if is_new else text, end]
        place += 1
        if end != ",":
            place, row = 0, rows.get(line)
    return "".join(found).encode(encoding)


def _npz(table: Table, columns: Columns) -> bytes:
    with np.load(table.path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for name, values in columns.items():
        old = arrays[name].dtype
        arrays[name] = values.astype(old) if old.kind == "f" else values
    found = io.BytesIO()
    np.savez(found, **arrays)
    return found.getvalue()


def _parquet(table: Table, columns: Columns) -> bytes:
    new = []
    for name, values in columns.items():
        old, series = table.columns[name].dtype, pl.Series(name, values)
        new.append(series.cast(old) if old.is_float() else series)
    found = io.BytesIO()
    pl.DataFrame(list(table.columns.values())).with_columns(new).write_parquet(found)
    return found.getvalue()
