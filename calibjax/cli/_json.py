"""JSON, an object for each row: columns are its keys, and p.cat is the key cat of an object p."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import typer

from calibjax.cli._harness import with_probabilities
from calibjax.cli._table import FileTable
from calibjax.cli._terminal import BadInput

# How far sums of rounded probabilities may be from 1, to be taken for such.
_ROUNDING = 0.01


class Objects(NamedTuple):
    """How objects are written.

    Args:
        content: an object on each line that is not blank.
        columns: their values; null where an object lacks a key.
    """

    content: bytes
    columns: dict[str, pl.Series]

    def content_of(self, new: Sequence[pl.Series]) -> bytes:
        """The objects on lines, with new columns; where these are null, nothing is new.

        Columns that are in no object, such as those of a log, are new keys.
        """
        texts = (x for x in self.content.splitlines() if x.strip())
        found = []
        for text, *values in zip(texts, *(column.to_list() for column in new), strict=True):
            record = json.loads(text)
            for column, value in zip(new, values, strict=True):
                if value is not None:
                    _put(record, column.name, value)
            found.append(json.dumps(record, ensure_ascii=False))
        return "\n".join([*found, ""]).encode()


def read_json(path: Path, content: bytes) -> FileTable:
    """A list of objects, whose rows are counted from 0, or lines, by which objects are called."""
    rows = {}
    if content.lstrip().startswith(b"["):
        for k, value in enumerate(_loaded(str(path), content)):
            rows[k] = _record(f"{path}, row {k}", value)
    else:
        for k, line in enumerate(content.splitlines(), 1):
            if line.strip():
                rows[k] = _record(f"{path}, line {k}", _loaded(f"{path}, line {k}", line))
    if not rows:
        raise BadInput(f"{path}: expected an object on each line, got an empty file.")
    flat, lines = list(rows.values()), np.array(list(rows), int)
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns = {name: _column(name, [row.get(name) for row in flat]) for name in names}
    filled = {name: columns[name].fill_null(0) for name in _options(path, flat, names)}
    return FileTable(path, columns | filled, lines, written=Objects(content, columns))


def _loaded(place: str, text: bytes) -> Any:
    try:
        return json.loads(text, parse_float=_finite)
    except (ValueError, RecursionError) as error:  # also a text that is not UTF-8
        raise BadInput(f"{place}: this JSON cannot be read: {error}.") from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"expected numbers of 64 bits, got {text}")
    return number


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


def _put(record: dict[str, Any], name: str, value: Any) -> None:
    """Sets the value that `_flat` has under a name."""
    for key, inner in record.items():
        rest = name.removeprefix(f"{key}.")
        if isinstance(inner, dict) and rest != name and rest in _flat(inner):
            return _put(inner, rest, value)
    record[name] = value


def _options(path: Path, flat: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """Options of questions: their number differs, and what is not asked has the probability 0."""
    objects: dict[str, list[str]] = {}
    for name in names:
        if "." in name:
            objects.setdefault(name.rpartition(".")[0], []).append(name)
    found = []
    for name, keys in objects.items():
        rows = [[row[key] for key in keys if key in row] for row in flat]
        if min(map(len, rows)) < len(keys) and all(map(_are_probabilities, rows)):
            found += keys
            typer.echo(
                f"{path}: objects {name} have different keys; the probability of what a row lacks "
                "is 0.",
                err=True,
            )
    return found


def _are_probabilities(values: Sequence[Any]) -> bool:
    """Whether numbers sum to 1, up to rounding."""
    are_shares = all(type(x) in (int, float) and 0 <= x <= 1 for x in values)
    return are_shares and abs(sum(values) - 1) <= _ROUNDING


def _column(name: str, values: list[Any]) -> pl.Series:
    """Numbers, truth values and lists of numbers as they are, all else as text."""
    kinds = {type(x) for x in values if x is not None}
    inner = {type(y) for x in values if type(x) is list for y in x if y is not None}
    if kinds == {list} and inner <= {int, float}:
        return pl.Series(name, values, pl.List(pl.Float64), strict=False)
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    if kinds == {int} and all(abs(x) < 2**63 for x in values if x is not None):
        return pl.Series(name, values, pl.Int64)
    if float in kinds and kinds <= {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    texts = [x if x is None or isinstance(x, str) else json.dumps(x) for x in values]
    return pl.Series(name, texts, pl.String)
