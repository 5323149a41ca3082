"""Text with a separator between columns: commas, semicolons, tabs or bars."""

import csv
import io
import itertools
import re
from codecs import BOM_UTF8
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from calibjax.frames._table import are_empty

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# What stands behind a quotation mark that opens a number, while a text is read.
_MARK = "\1"
# Lines that say which separator a file has.
_LINES = 20


class Text(NamedTuple):
    """How a text is written.

    Args:
        header: the names of all columns, of which some may be empty.
        separator: what is between columns.
        with_commas: the columns of numbers that have commas before decimals.
        quoted: the columns of numbers in quotes, if other numbers are not.
        has_bom: whether a byte order mark is before it, without which spreadsheets garble accents.
        said: what users should know of how it was read.
    """

    header: tuple[str | None, ...]
    separator: str
    with_commas: list[str]
    quoted: set[str]
    has_bom: bool
    said: str

    def content_of(self, frame: pl.DataFrame, new: list[str]) -> bytes:
        """The frame as such a text; some of its columns are new numbers."""
        commas = pl.col({*self.with_commas, *new} if self.with_commas else [])
        frame = frame.with_columns(commas.cast(pl.String).str.replace(".", ",", literal=True))
        header = pl.DataFrame([self.header], orient="row")
        options: Any = {"include_header": False, "separator": self.separator}
        text = header.write_csv(**options) + frame.write_csv(**options)
        return (BOM_UTF8 if self.has_bom else b"") + text.encode()


def read_delimited(
    content: bytes, separator: str | None = None, decimal: str | None = None
) -> tuple[dict[str, pl.Series], np.ndarray, Text]:
    """The columns of a text, whose header is its first line that is not blank, and their lines.

    Columns without a name are called by their numbers, behind a blank.

    Args:
        content: its bytes.
        separator: the character between columns; None if the file should say it.
        decimal: the character before decimals, a point or a comma; None for a point, or for a comma
            where the separator is none and numbers say so.
    """
    text = content.removeprefix(BOM_UTF8)
    found = separator or _separator_of(text)
    cells, lines, quoted = _cells(text, found)
    is_used = cells.select(~pl.all_horizontal(pl.all().is_null())).to_series()
    if not is_used.any():
        raise ValueError("it is empty")
    cells, lines = cells.filter(is_used), lines[is_used.to_numpy()]
    header = cells.row(0)
    names = [(name or "").strip() or f" {k}" for k, name in enumerate(header, 1)]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"expected different names of columns, got {name} twice")
    frame = cells[1:].rename(dict(zip(cells.columns, names, strict=True)))
    commas = [] if found == "," and decimal is None else _with_commas(frame, decimal)
    frame = frame.with_columns(pl.col(commas).str.replace(",", ".", literal=True))
    said = [f"{_SEPARATORS[found]} between columns"] if separator is None and found != "," else []
    said += ["commas before decimals"] if commas and decimal is None else []
    has_bom, in_quotes = content.startswith(BOM_UTF8), {names[k] for k in quoted}
    how = Text(header, found, commas, in_quotes, has_bom, " and ".join(said))
    return frame.to_dict(), lines[1:], how


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


def _cells(text: bytes, separator: str) -> tuple[pl.DataFrame, np.ndarray, set[int]]:
    """All cells as texts, so that an error can quote what is there, and the line of each row.

    Also which columns have numbers in quotes, if these are not around all numbers of the text.

    Empty cells are null.  Polars toggles at each quotation mark between what is inside of quotes
    and what is not: one that stands for inches would join rows.  Texts with such marks, and what
    Polars refuses, are for csv.
    """
    plain = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    n_blank = len(plain) - len(plain.lstrip(b"\n"))
    if b'"' not in text and n_blank < len(plain):
        with suppress(pl.exceptions.ComputeError):
            options: Any = {"has_header": False, "infer_schema": False, "separator": separator}
            frame = pl.read_csv(plain[n_blank:], quote_char=None, **options)
            return frame, np.arange(n_blank, n_blank + len(frame)) + 1, set()
    opening = b"(?m)(^|" + re.escape(separator.encode()) + rb')"(?=[+-]?\.?\d)'
    marked = re.sub(opening, rb'\1"' + _MARK.encode(), text)
    reader, rows, lines, line, n_columns = _reader(marked, separator, strict=True), [], [], 1, 0
    quoted: set[int] = set()
    all_quoted = True
    try:
        for row in reader:
            if n_columns:  # the header is not a row
                quoted |= {k for k, x in enumerate(row) if x.startswith(_MARK)}
                all_quoted = all_quoted and not any(x[:1].isdigit() for x in row)
            rows.append([x.removeprefix(_MARK) for x in row])
            lines.append(line)
            n_columns = n_columns or len(row)
            if len(row) > n_columns:
                raise csv.Error(f"expected {n_columns} values, as in the header, got {len(row)}")
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"line {line}: {error}; --separator says what is between columns, and quotation marks "
            "are around a whole value, and doubled inside of it"
        ) from None
    quoted = set() if all_quoted else quoted
    columns = enumerate(itertools.zip_longest(*rows))
    frame = pl.DataFrame([pl.Series(str(k), x, pl.String) for k, x in columns])
    with suppress(pl.exceptions.PolarsError):
        read = pl.read_csv(text, has_header=False, infer_schema=False, separator=separator)
        read.columns = [str(k) for k in range(read.width)]
        # Where both read the same texts, Polars tells an empty one in quotes from an empty cell.
        if read.fill_null("").equals(frame.fill_null("")):
            return read, np.array(lines, int), quoted
    return frame.with_columns(pl.all().replace("", None)), np.array(lines, int), quoted


def _with_commas(frame: pl.DataFrame, decimal: str | None) -> list[str]:
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
    # Thousands have three digits behind a comma, and do not begin with a zero.
    shown = pl.concat(cells)
    is_of_thousands = shown.str.tail(4).str.starts_with(",") & ~shown.str.starts_with("0")
    if decimal is None and found and is_of_thousands.all():
        raise ValueError(
            f"a number such as {shown[0]} has two readings; --decimal , says that a comma is "
            "before decimals, and --decimal . that it is not"
        )
    return found
