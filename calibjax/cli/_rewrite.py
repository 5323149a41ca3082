"""A file again, with new numbers in some of its columns."""

import io
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from calibjax.cli._delimited import BOM, names_of_columns
from calibjax.cli._table import FileTable

Columns = Mapping[str, np.ndarray]


def with_columns_of(table: FileTable, columns: Columns) -> bytes:
    """The content of the file of a table, in which columns have other numbers.

    All other columns and all rows stay as they are, and so does the order of both.  Options that a
    row lacks stay away, and its other probabilities are divided by their sum.

    Args:
        table: what was read from the file.
        columns: numbers ``[n]``, or of an npz file also ``[n, m]``, by names of the table.
    """
    return _WRITERS[table.path.suffix.lower()](table, columns)


def _of_options(table: FileTable, columns: Columns) -> Columns:
    """The columns, with NaN in cells that are empty and rows that have a sum of 1 again."""
    is_missing = np.stack([table.columns[name].is_null().to_numpy() for name in columns], axis=1)
    if not is_missing.any():
        return columns
    values = np.where(is_missing, np.nan, np.stack(list(columns.values()), axis=1))
    values = values / np.nansum(values, axis=1, keepdims=True)
    return dict(zip(columns, values.T, strict=True))


def _json_lines(table: FileTable, columns: Columns) -> bytes:
    """Every object again; columns that are in none, such as those of a log, are new keys."""
    cells = {name: table.columns[name].to_list() for name in columns}
    row, lines = 0, table.path.read_bytes().split(b"\n")
    for k, line in enumerate(lines):
        if not line.strip():
            continue
        record = json.loads(line)
        places = {name: _place_in(record, name) for name in columns}
        if not any(places.values()):
            places = {name: (record, name) for name in columns}
        old = {name: np.size(cells[name][row]) for name in columns}
        new = {name: np.atleast_1d(columns[name][row])[: old[name]] for name in columns}
        held = [new[name] for name, place in places.items() if place is not None]
        if sum(map(np.size, held)) < sum(np.size(columns[name][row]) for name in columns):
            total = sum(map(np.sum, held))
            new = {name: values / total for name, values in new.items()}
        for name, place in places.items():
            if place is not None:
                inner, key = place
                inner[key] = (
                    new[name].tolist() if np.ndim(columns[name]) > 1 else float(new[name][0])
                )
        lines[k] = json.dumps(record, ensure_ascii=False).encode()
        row += 1
    return b"\n".join(lines)


def _place_in(record: dict[str, Any], name: str) -> tuple[dict[str, Any], str] | None:
    """The object inside of a record, and its key, that a name with points stands for."""
    if name in record:
        return record, name
    for key, inner in record.items():
        if isinstance(inner, dict) and name.startswith(f"{key}."):
            place = _place_in(inner, name.removeprefix(f"{key}."))
            if place is not None:
                return place
    return None


def _text(table: FileTable, columns: Columns) -> bytes:
    """Of the text only the new numbers are replaced: quotes and line ends are kept."""
    content, assumed = table.path.read_bytes(), table.text
    columns = _of_options(table, columns)
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
        is_new = row is not None and place in places and not np.isnan(places[place][row])
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
    for name, values in _of_options(table, columns).items():
        old, series = table.columns[name].dtype, pl.Series(name, values, nan_to_null=True)
        new.append(series.cast(old) if old.is_float() else series)
    found = io.BytesIO()
    pl.DataFrame(list(table.columns.values())).with_columns(new).write_parquet(found)
    return found.getvalue()


_WRITERS = {
    ".csv": _text,
    ".tsv": _text,
    ".jsonl": _json_lines,
    ".npz": _npz,
    ".parquet": _parquet,
}
# Of the files that can be read, those that can be written again.
WRITTEN = tuple(_WRITERS)
