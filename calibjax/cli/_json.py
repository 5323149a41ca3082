"""JSON, an object for each row: columns are its keys, and p.cat is the key cat of an object p."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from calibjax.cli._harness import with_probabilities
from calibjax.cli._table import FileTable
from calibjax.cli._terminal import BadInput


def read_json_lines(path: Path, content: bytes) -> FileTable:
    """A line is an object; rows are called by their lines."""
    records = {}
    for k, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            place = f"{path}, line {k}"
            records[k] = _record(place, _loaded(place, line))
    if not records:
        raise BadInput(f"{path}: expected an object on each line, got an empty file.")
    columns = _columns(list(records.values()))
    return FileTable(path, columns, np.array(list(records), int))


def read_json(path: Path, content: bytes) -> FileTable:
    """A list of objects, whose rows are counted from 0; or an object on each line."""
    try:
        records = _loaded(str(path), content)
    except BadInput:
        if content.lstrip()[:1] != b"{":
            raise
        return read_json_lines(path, content)
    if not isinstance(records, list):
        raise BadInput(f"{path}: expected a list of objects, one for each row.")
    rows = [_record(f"{path}, row {k}", x) for k, x in enumerate(records)]
    return FileTable(path, _columns(rows))


def _loaded(place: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also a text that is not UTF-8
        raise BadInput(f"{place}: this is no JSON: {error}.") from None


def _record(place: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        came = "a list" if isinstance(value, list) else json.dumps(value)
        raise BadInput(f"{place}: expected an object, such as {{'p': 0.3, 'y': 1}}, got {came}.")
    return with_probabilities(_flat(value))


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Keys of objects inside of a record follow its own after a point."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        inner = _flat(value) if isinstance(value, dict) else {}
        flat |= {f"{name}.{key}": x for key, x in inner.items()} or {name: value}
    return flat


def _columns(records: Sequence[dict[str, Any]]) -> dict[str, pl.Series]:
    names = dict.fromkeys(name for record in records for name in record)
    return {name: _column(name, [record.get(name) for record in records]) for name in names}


def _column(name: str, values: list[Any]) -> pl.Series:
    """Numbers, truth values and lists of numbers as they are, all else as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {str}:
        return pl.Series(name, values, pl.Boolean if kinds == {bool} else pl.String)
    if kinds == {int} and all(abs(x) < 2**63 for x in values if x is not None):
        return pl.Series(name, values, pl.Int64)
    if float in kinds and kinds <= {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    if kinds == {list} and {type(x) for value in values for x in value or ()} <= {
        int,
        float,
        type(None),
    }:
        return pl.Series(name, values, pl.List(pl.Float64), strict=False)
    texts = [x if x is None or isinstance(x, str) else json.dumps(x) for x in values]
    return pl.Series(name, texts, pl.String)
