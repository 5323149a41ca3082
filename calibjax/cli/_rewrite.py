"""A file again, with new numbers in some of its columns."""

import io
import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from calibjax.cli._delimited import BOM, names_of_columns
from calibjax.cli._table import FileTable

Columns = Mapping[str, np.ndarray]


def with_columns_of(table: FileTable, columns: Columns) -> bytes:
    """The content of the file of a table, in which columns have other numbers.

    All other columns and all rows stay as they are, and so does the order of both.

    Args:
        table: what was read from the file.
        columns: numbers ``[n]``, or of an npz file also ``[n, m]``, by names of the table.
    """
    return _WRITERS[table.path.suffix.lower()](table, columns)


def _text(table: FileTable, columns: Columns) -> bytes:
    """Of the text only the new numbers are replaced: quotes and line ends are kept."""
    content, assumed = table.path.read_bytes(), table.text
    assert assumed is not None
    encoding = "utf-8-sig" if content.startswith(BOM) else "utf-8"
    # A field as it is written, with its quotes, and what ends it.
    end = re.escape(assumed.separator)
    field = re.compile(rf'([^"{end}\r\n]*(?:"(?:[^"]|"")*"[^"{end}\r\n]*)*)({end}|\r\n|\n|\r|$)')
    names = names_of_columns(table.path, content.removeprefix(BOM), assumed.separator)[0]
    places = {names.index(name): values for name, values in columns.items()}
    assert table.rows is not None
    # The row of a table that starts at each line of the file.
    rows = {int(line): row for row, line in enumerate(table.rows)}
    found, line, place, row = [], 1, 0, rows.get(1)
    for text, end in field.findall(content.decode(encoding)):
        line += text.count("\n") + end.count("\n")
        is_new = row is not None and place in places
        number = str(places[place][row]).replace(".", assumed.decimal) if is_new else text
        found += [number, end]
        place += 1
        if end != assumed.separator:
            place, row = 0, rows.get(line)
    return "".join(found).encode(encoding)


def _npz(table: FileTable, columns: Columns) -> bytes:
    with np.load(table.path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for name, values in columns.items():
        old = arrays[name].dtype
        arrays[name] = values.astype(old) if old.kind == "f" else values
    found = io.BytesIO()
    np.savez(found, **arrays)
    return found.getvalue()


def _parquet(table: FileTable, columns: Columns) -> bytes:
    new = []
    for name, values in columns.items():
        old, series = table.columns[name].dtype, pl.Series(name, values)
        new.append(series.cast(old) if old.is_float() else series)
    found = io.BytesIO()
    pl.DataFrame(list(table.columns.values())).with_columns(new).write_parquet(found)
    return found.getvalue()


_WRITERS = {".csv": _text, ".tsv": _text, ".npz": _npz, ".parquet": _parquet}
# Of the files that can be read, those that can be written again.
WRITTEN = tuple(_WRITERS)
