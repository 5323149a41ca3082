"""Text with a separator between columns: commas, semicolons, tabs or bars."""

import codecs
import csv
import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer

from calibjax.cli._table import FileTable, Text
from calibjax.cli._terminal import BadInput

# What some programs write before a text in UTF-8.
BOM = codecs.BOM_UTF8
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Lines that say which separator a file has.
_LINES = 20
_WITH_COMMA = r"^\s*[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?\s*$"
_WITH_POINT = r"^\s*[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_OF_THOUSANDS = r"^\s*[+-]?\d{1,3}(,\d{3})+\s*$"


def read_delimited(
    path: Path, content: bytes, separator: str | None = None, decimal: str | None = None
) -> FileTable:
    """The columns of a text, whose header is line 1.

    Args:
        path: what errors call the file.
        content: its bytes.
        separator: the character between columns; None if the file should say it.
        decimal: the character before decimals, a point or a comma; None for a point, or for a comma
            where the separator is none and numbers say so.
    """
    if b"\0" in content[:4]:
        raise BadInput(f"{path}: expected a text in UTF-8, got UTF-16; save it as UTF-8.")
    content = content.removeprefix(BOM)
    try:
        found = _separator_of(content) if separator is None else separator
        names, n_before = names_of_columns(path, content, found)
    except UnicodeDecodeError:
        raise BadInput(f"{path}: expected a text in UTF-8; save it as UTF-8.") from None
    frame = _cells(path, content, found, len(names), n_before)
    breaks = frame.select(pl.sum_horizontal(pl.all().str.count_matches("\n", literal=True)))
    lines_of_rows = breaks.to_series().to_numpy().astype(int) + 1
    rows = n_before + 1 + np.cumsum(lines_of_rows) - lines_of_rows
    kept = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().to_numpy().copy()
    kept[0] = False
    frame = frame.filter(kept)
    with_commas = [] if found == "," and decimal is None else _with_commas(path, frame, decimal)
    frame = frame.with_columns(pl.col(with_commas).str.replace(",", ".", literal=True))
    seen = [f"{_SEPARATORS[found]} between columns"] if separator is None and found != "," else []
    seen += ["commas before decimals"] if with_commas and decimal is None else []
    if seen:
        typer.echo(f"{path}: read with {' and '.join(seen)}.", err=True)
    columns = zip(names, frame.iter_columns(), strict=True)
    named = {name: x.alias(name) for name, x in columns if name}
    return FileTable(path, named, rows[kept], text=Text(found, "," if with_commas else "."))


def _lines(content: bytes, separator: str) -> Any:
    """The reader of csv, which knows quotes and line breaks inside of them."""
    text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    return csv.reader(text, delimiter=separator)


def _separator_of(content: bytes) -> str:
    """The first of all separators that gives the first lines equally many columns, two or more."""
    for separator in _SEPARATORS:
        lines = itertools.islice(filter(any, _lines(content, separator)), _LINES)
        sizes = {len(cells) for cells in lines}
        if len(sizes) == 1 and max(sizes) > 1:
            return separator
    return ","


def names_of_columns(path: Path, content: bytes, separator: str) -> tuple[list[str], int]:
    """The names of the columns, and the number of blank lines before them."""
    names: list[str] = []
    reader, n_before = _lines(content, separator), 0
    for names in reader:
        if any(names):
            break
        n_before = reader.line_num
    names = [name.strip() for name in names]
    for name in names:
        if name and names.count(name) > 1:
            raise BadInput(f"{path}: expected different names of columns, got {name} twice.")
    return names, n_before


def _cells(
    path: Path, content: bytes, separator: str, n_columns: int, n_before: int
) -> pl.DataFrame:
    """All cells as text, so that an error can quote what is there; the header is the first row."""
    try:
        return pl.read_csv(
            content,
            has_header=False,
            infer_schema=False,
            skip_rows=n_before,
            separator=separator,
        )
    except pl.exceptions.ComputeError:
        reader = _lines(content, separator)
        for cells in reader:
            if len(cells) > n_columns:
                raise BadInput(
                    f"{path}, line {reader.line_num}: expected {n_columns} values, as the header "
                    f"has names, got {len(cells)}; --separator says what is between columns."
                ) from None
        raise


def _with_commas(path: Path, frame: pl.DataFrame, decimal: str | None) -> list[str]:
    """The columns of numbers that have commas before decimals."""
    if decimal == ".":
        return []
    commas = frame.columns and [
        name
        for name in frame.columns
        if frame[name].str.contains(_WITH_COMMA).drop_nulls().all()
        and frame[name].str.contains(",", literal=True).any()
    ]
    if decimal is None and commas:
        if any(frame[name].str.contains(_WITH_POINT).any() for name in frame.columns):
            return []
        cells = pl.concat([frame[name].alias("cell") for name in commas])
        cells = cells.filter(cells.str.contains(",", literal=True).fill_null(False))
        if cells.str.contains(_OF_THOUSANDS).all():
            raise BadInput(
                f"{path}: a number such as {cells[0].strip()} has two readings; --decimal , says "
                "that a comma is before decimals, and --decimal . that it is not."
            )
    return list(commas)
