"""JSON, an object for each row: columns are its keys, and p.cat is the key cat of an object p.

Logs of lm-evaluation-harness have an object for each question of multiple choice: `filtered_resps`
holds [log-likelihood, is it greedy] for each option, as texts, and `target` the index of the right
one.  The probabilities of the options are exp(log-likelihood), divided by their sum, as the harness
itself compares them for acc.  For acc_norm it compares log-likelihoods per letter, of which a
second column is made.  With acc_mutual_info the second half of the log-likelihoods are those of the
options without their question.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from calibjax.frames._columns import ANSWERS, PROBS, PROBS_PER_LETTER, TARGET
from calibjax.frames._table import Table

_KEYS = {"doc_id", ANSWERS, TARGET}


def lines_with(table: Table, new: Sequence[pl.Series]) -> bytes:
    """The objects of a file of lines with new columns; where these are null, nothing is new.

    Columns that are in no object, such as those of a log, are new keys.
    """
    texts = (line for line in table.written.splitlines() if line.strip())
    rows = zip(table.rows, texts, *(column.to_list() for column in new), strict=True)
    found = []
    for number, text, *values in rows:
        record = json.loads(text)
        for column, value in zip(new, values, strict=True):
            if value is not None:
                _put(record, column.name, value)
        found.append(json.dumps(record, ensure_ascii=False))
        if found[-1].count("Infinity") > text.count(b"Infinity"):
            where = f"{table.source}, line {number}"
            raise ValueError(f"{where}: a number is too large for 64 bits; write a text.")
    return "\n".join([*found, ""]).encode()


def read_json(content: bytes) -> tuple[dict[str, pl.Series], np.ndarray]:
    """The columns of a list of objects, whose rows are counted from 0, or of lines, and these."""
    content = content.removeprefix(BOM_UTF8)
    if content.lstrip().startswith(b"["):
        found = {f"row {k}": (k, x) for k, x in enumerate(_loaded("", content))}
    else:
        lines = enumerate(content.splitlines(), 1)
        found = {f"line {k}": (k, _loaded(f"line {k}: ", x)) for k, x in lines if x.strip()}
    if not found:
        raise ValueError("expected an object on each line, got an empty file")
    for where, (_, value) in found.items():
        if not isinstance(value, dict):
            shown = "a list" if isinstance(value, list) else json.dumps(value)
            raise ValueError(f"{where}: expected an object such as {{'p': 0.3}}, got {shown}")
    records = [_with_probabilities(_flat(value)) for _, value in found.values()]
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: _column(name, [record.get(name) for record in records]) for name in names}
    return columns, np.array([k for k, _ in found.values()], int)


def _loaded(where: str, text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also a text that is not UTF-8
        raise ValueError(f"{where}this JSON cannot be read: {error}") from None


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Keys of objects inside of a record follow its own after a point."""
    if dict not in map(type, record.values()):
        return record
    flat: dict[str, Any] = {}
    for name, value in record.items():
        inner = _flat(value) if isinstance(value, dict) else {}
        flat |= {f"{name}.{key}": x for key, x in inner.items()} or {name: value}
    return flat


def _put(record: dict[str, Any], name: str, value: object) -> None:
    """Sets the value that `_flat` has under a name."""
    for key, inner in record.items():
        rest = name.removeprefix(f"{key}.")
        if isinstance(inner, dict) and rest != name and rest in _flat(inner):
            return _put(inner, rest, value)
    record[name] = value


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


def _with_probabilities(record: dict[str, Any]) -> dict[str, Any]:
    """The record, with the probabilities of the options if it is one of such a log.

    Mended ones stand in it already.  If no option has a finite log-likelihood they are None.
    """
    if not _KEYS <= record.keys() or PROBS in record:
        return record
    try:
        values = np.array([float(value) for value, _ in record[ANSWERS]])
    except (TypeError, ValueError):
        return record  # an answer in words
    if "acc_mutual_info" in record:
        values = values[: len(values) // 2]
    found = record | {PROBS: _shares(values)}
    texts = [str(record.get(f"arguments.gen_args_{k}.arg_1", "")) for k in range(len(values))]
    # A blank comes before the text of an option.
    letters = [len(text.removeprefix(" ")) for text in texts]
    if "acc_norm" in record and all(letters):
        found[PROBS_PER_LETTER] = _shares(values / letters)
    return found


def _shares(values: np.ndarray) -> list[float] | None:
    if not values.max(initial=-np.inf) > -np.inf:
        return None
    shares = np.exp(values - values.max())
    return (shares / shares.sum()).tolist()
