"""Text with a separator between columns: commas, semicolons, tabs or bars."""

import csv
import io
import itertools
import sys
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from calibjax.frames._table import are_empty
from calibjax.frames.files._table import FileTable

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Lines that say which separator a file has.
_LINES = 20


class Text(NamedTuple):
    """How a text is written.

    Args:
        header: the names of all columns, of which some may be empty.
        columns: all of them; those without a name are called by their numbers, behind a blank.
        separator: what is between columns.
        with_commas: the columns of numbers that have commas before decimals.
        has_bom: whether a byte order mark is before it, without which spreadsheets garble accents.
    """

    header: tuple[str | None, ...]
    columns: dict[str, pl.Series]
    separator: str
    with_commas: list[str]
    has_bom: bool

    def content_of(self, frame: pl.DataFrame, new: list[str]) -> bytes:
        """The frame as such a text; some of its columns are new numbers."""
        commas = pl.col({*self.with_commas, *new} if self.with_commas else [])
        frame = frame.with_columns(commas.cast(pl.String).str.replace(".", ",", literal=True))
        header = pl.DataFrame([self.header], orient="row")
        texts = (
            x.write_csv(include_header=False, separator=self.separator) for x in (header, frame)
        )
        return (BOM_UTF8 if self.has_bom else b"") + "".join(texts).encode()


def read_delimited(
    path: Path, content: bytes, separator: str | None = None, decimal: str | None = None
) -> FileTable:
    """The columns of a text, whose header is its first line that is not blank.

    Args:
        path: what errors call the file.
        content: its bytes.
        separator: the character between columns; None if the file should say it.
        decimal: the character before decimals, a point or a comma; None for a point, or for a comma
            where the separator is none and numbers say so.
    """
    text = content.removeprefix(BOM_UTF8)
    found = separator or _separator_of(text)
    if not any(map(any, _reader(text, found, strict=False))):
        raise ValueError("it is empty")
    cells = _cells(path, text, found)
    n_lines = 1 + pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True))
    lines = cells.select(1 + n_lines.cum_sum() - n_lines).to_series()
    is_blank = cells.select(pl.all_horizontal(pl.all().is_null())).to_series()
    lines, cells = lines.filter(~is_blank), cells.filter(~is_blank)
    header = cells.row(0)
    names = [(name or "").strip() or f" {k}" for k, name in enumerate(header, 1)]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path}: expected different names of columns, got {name} twice.")
    frame = cells[1:].rename(dict(zip(cells.columns, names, strict=True)))
    commas = [] if found == "," and decimal is None else _with_commas(path, frame, decimal)
    frame = frame.with_columns(pl.col(commas).str.replace(",", ".", literal=True))
    seen = [f"{_SEPARATORS[found]} between columns"] if separator is None and found != "," else []
    seen += ["commas before decimals"] if commas and decimal is None else []
    if seen:
        print(f"{path}: read with {' and '.join(seen)}.", file=sys.stderr)
    columns = frame.to_dict()
    written = Text(header, columns, found, commas, content.startswith(BOM_UTF8))
    named = {name: column for name, column in columns.items() if name.strip() == name}
    return FileTable(path, named, lines[1:].to_numpy(), written=written)


def _reader(text: bytes, separator: str, strict: bool) -> Any:
    """The rows by csv, for which quotation marks inside of a cell without quotes are text."""
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", newline="")
    return csv.reader(lines, delimiter=separator, strict=strict)


def _separator_of(text: bytes) -> str:
    """The first of all separators that gives the first lines equally many columns, two or more."""
    for separator in _SEPARATORS:
        rows = itertools.islice(filter(any, _reader(text, separator, strict=False)), _LINES)
        sizes = {len(row) for row in rows}
        if len(sizes) == 1 and max(sizes) > 1:
            return separator
    return ","


def _cells(path: Path, text: bytes, separator: str) -> pl.DataFrame:
    """All cells as texts, so that an error can quote what is there, with null for empty ones.

    Polars toggles at each quotation mark between what is inside of quotes and what is not: one that
    stands for inches would join rows.  What is no standard text, or what it refuses, is for csv.
    """
    if _is_standard(text, separator):
        with suppress(pl.exceptions.ComputeError):
            return pl.read_csv(text, has_header=False, infer_schema=False, separator=separator)
    reader, line, rows = _reader(text, separator, strict=True), 1, []
    n_columns = 0
    try:
        for row in reader:
            rows.append(row)
            n_columns = n_columns or len(row)
            if len(row) > n_columns:
                raise csv.Error(f"expected {n_columns} values, as in the header, got {len(row)}")
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {line}: {error}; --separator says what is between columns, and "
            "quotation marks are around a whole value, and doubled inside of it."
        ) from None
    columns = itertools.zip_longest(*rows)
    frame = pl.DataFrame([pl.Series(str(k), x, pl.String) for k, x in enumerate(columns)])
    return frame.with_columns(pl.all().replace("", None))


def _is_standard(text: bytes, separator: str) -> bool:
    r"""Whether line ends of the first line and all quotation marks are where Polars expects them.

    Lines end in \n or \r\n, and the first one is not blank.  Every other mark opens a quoted part,
    behind the end of a cell or behind a mark that it doubles, and the next one closes it, before
    the end of the cell or before its double.
    """
    characters = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(characters == ord('"')) if b'"' in text else np.zeros(0, int)
    # The first and the last mark of a text have themselves beside them.
    beside = np.concatenate([marks[::2] - 1, marks[1::2] + 1]).clip(0, len(text) - 1)
    are_around_cells = np.isin(characters[beside], [*f'"\r\n{separator}'.encode()]).all()
    first = text[: text.find(b"\n")].removesuffix(b"\r")
    return bool(are_around_cells) and len(marks) % 2 == 0 and b"\r" not in first and bool(first)


def _with_commas(path: Path, frame: pl.DataFrame, decimal: str | None) -> list[str]:
    """The columns of numbers that have commas before decimals."""
    found, cells = [], [pl.Series([], dtype=pl.String)]
    for column in frame if decimal != "." else ():
        texts = column.drop_nulls().str.strip_chars(" \t%").alias("")
        points, commas = (texts.filter(texts.str.contains(x, literal=True)) for x in ".,")
        if decimal is None and points.cast(pl.Float64, strict=False).count():
            return []
        numbers = texts.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
        are_numbers = are_empty(texts.filter(numbers.is_null()).to_numpy()).all()
        if len(commas) and points.is_empty() and are_numbers:
            found.append(column.name)
            cells.append(commas)
    # Of thousands there are three digits behind a comma, and no zero begins them.
    shown = pl.concat(cells)
    is_of_thousands = shown.str.tail(4).str.starts_with(",") & ~shown.str.starts_with("0")
    if decimal is None and found and is_of_thousands.all():
        raise ValueError(
            f"{path}: a number such as {shown[0]} has two readings; --decimal , says that a comma "
            "is before decimals, and --decimal . that it is not."
        )
    return found
