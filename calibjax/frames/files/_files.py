"""Files of all formats, and standard input, as tables."""

import gzip
import io
import statistics
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import polars as pl

from calibjax._base.text import listed
from calibjax.frames._array_conversion import cells_of
from calibjax.frames._table import Table
from calibjax.frames.files._delimited import Text, read_delimited
from calibjax.frames.files._json import read_json

ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".npz")
# What stands for standard input on a command line.
_STANDARD_INPUT = Path("-")
_GZIP = b"\x1f\x8b"
# The format of input without a name, by its first bytes; a text other than JSON is CSV.
_STARTS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK": ".npz", b"{": ".jsonl", b"[": ".json"}
# What is raised where a file is damaged, or of another format.
_UNREADABLE = BadZipFile, EOFError, ValueError, OSError, pl.exceptions.PolarsError, zlib.error


def read_files(
    paths: Sequence[Path],
    separator: str | None = None,
    decimal: str | None = None,
    on_command_line: bool = False,
) -> Table:
    """The rows of one file after those of the other; all have the columns of the first.

    Keys that a file of JSON lacks are missing values, as in its objects.

    Args:
        paths: the files; "-" is standard input.
        separator: what is between columns of text, a character or "tab"; None if the file says it.
        decimal: what is before decimals, "." or ","; None if the file says it.
        on_command_line: as in `Table`.
    """
    separator = {"tab": "\t", "\\t": "\t"}.get(separator or "", separator)
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"--separator must be one character, or tab, got {separator!r}.")
    if decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be . or a comma, got {decimal!r}.")
    first, *others = (_read(path, separator, decimal, on_command_line) for path in paths)
    if not others:
        return first
    for other in others:
        missing = [name for name in first.columns if name not in other.columns]
        if missing and not isinstance(other.written, bytes):
            raise ValueError(
                f"{other.source}: expected the columns of {first.source}, got none called "
                f"{listed(missing)}."
            )
    tables = [first, *others]
    columns = {
        name: np.concatenate([x.columns.get(name, np.full(len(x), None)) for x in tables])
        for name in first.columns
    }
    sources = np.array([table.source for table in tables], object)
    paths_of_rows = np.repeat(sources, [len(table) for table in tables])
    rows = np.concatenate([table.rows for table in tables])
    untyped = frozenset.intersection(*(frozenset(table.untyped) for table in tables))
    return Table(columns, rows, first.source, on_command_line, paths=paths_of_rows, untyped=untyped)


def rows_where(table: Table, condition: str) -> Table:
    """The rows for which a condition of SQL is true, such as ``lead == 3 and day >= 2``."""
    flat = {name: x for name, x in table.columns.items() if x.ndim == 1}
    try:
        series = (pl.Series(x, table.by_type(x, y), strict=False) for x, y in flat.items())
        frame = pl.DataFrame([x for x in series if not x.dtype.is_nested()])
        (found,) = frame.select(pl.sql_expr(condition).alias("found")).iter_columns()
    except (pl.exceptions.PolarsError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if "cannot compare string with numeric" in reason:
            reason = "a number is compared with a text; write 3 for a number, '01004' for a text"
        raise ValueError(f"--where {condition}: {reason}.") from None
    if found.dtype != pl.Boolean or len(found) != len(table):
        raise ValueError(
            f"--where {condition}: expected true or false for each row, such as 'lead == 3', with "
            "texts in single quotes."
        )
    kept = table.taken(np.flatnonzero(found.fill_null(False).to_numpy()))
    table.say(f"{table.source}: {len(kept)} of {len(table)} rows are used, where {condition}.")
    return kept


def _read(path: Path, separator: str | None, decimal: str | None, on_command_line: bool) -> Table:
    if path == _STANDARD_INPUT:
        path, content, ending = Path("standard input"), sys.stdin.buffer.read(), None
    else:
        ending = Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()
        if ending not in ENDINGS:
            raise ValueError(f"{path}: expected a file that ends in {listed(ENDINGS)}, or in .gz.")
        if not path.is_file():
            raise ValueError(f"{path}: file not found.")
        content = path.read_bytes()
    kind, rows, written = ".gz", None, None
    series: dict[str, pl.Series]
    try:
        if path.suffix.lower() == kind or content.startswith(_GZIP):
            content = gzip.decompress(content)
        start = content.removeprefix(BOM_UTF8).lstrip()[:6]
        kind = ending or next((x for k, x in _STARTS.items() if start.startswith(k)), ".csv")
        if kind in (".jsonl", ".json"):
            series, rows = read_json(content)
            written = content
        elif kind in (".parquet", ".arrow"):
            read: Any = pl.read_parquet if kind == ".parquet" else pl.read_ipc
            series = read(io.BytesIO(content)).to_dict()
        elif kind == ".npz":
            series = _arrays(content)
        else:
            separator = separator or ("\t" if kind == ".tsv" else None)
            series, rows, written = read_delimited(content, separator, decimal)
    except _UNREADABLE as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        if isinstance(error, UnicodeDecodeError):
            reason = "expected a text in UTF-8; save it as UTF-8"
        raise ValueError(f"{path}: this {kind} file cannot be read: {reason}.") from error
    columns = {name: cells_of(name, x) for name, x in series.items() if name.strip() == name}
    if rows is None:  # Other arrays of an npz file may have other lengths.
        rows = np.arange(statistics.mode(map(len, columns.values())) if columns else 0)
    untyped = columns.keys() - written.quoted if isinstance(written, Text) else frozenset[str]()
    table = Table(
        columns, rows, str(path), on_command_line, untyped=untyped, series=series, written=written
    )
    said = getattr(written, "said", None)
    if said:
        table.say(f"{path}: read with {said}.")
    return table


def _arrays(content: bytes) -> dict[str, pl.Series]:
    """The arrays of an npz file."""
    file = np.load(io.BytesIO(content), allow_pickle=False)
    if isinstance(file, np.ndarray):
        raise ValueError("it holds one array without a name, as of numpy.save")
    with file:
        arrays = {name: np.atleast_1d(file[name]) for name in file.files}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufUSMm":
            raise ValueError(f"the array {name} has the dtype {array.dtype}")
    return {name: pl.Series(name, array) for name, array in arrays.items()}
