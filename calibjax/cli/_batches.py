"""Batches of the rows of a file, in the order of time, and hashes by which a row counts once."""

import hashlib
import itertools
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._data.distribution import Labels
from calibjax.frames import Model, as_iso

# Names with a clear order, besides numbers and dates: with one number, or with the year first; in
# others the day or the month may be first.
_CLEAR = re.compile(r"\s*([^0-9]*[0-9]+[^0-9]*|[0-9]{4}[^0-9].*)$")
# 1 PM is after 11 AM, and 12 PM is before 1 PM.
_CLOCK = re.compile(r"[0-9]\s*[ap]\.?\s?m\b", re.IGNORECASE)
_NUMBER, _DATE = "a number", "a date"
# Numbers of weeks, months and days after which a new year begins with 1.
_LAST_OF_YEAR = "12", "52", "53", "365", "366"
# The least number of pairs, the share of rows in them, and the rounding of their probabilities.
_PAIRS, _MOST, _ROUNDING = 10, 0.9, 2e-3

#: The form of a value of --by, and what values of this form are ordered by.
SortKey = tuple[str, tuple[Any, ...]]


class Batch(NamedTuple):
    """Consecutive rows.

    Args:
        name: their value of the column of --by; without one, the file.
        hashes: a hash of what identifies each row: of its numbers, or of its --id, ``[n]``.
        origin: the file and the time of rows that were counted.
    """

    name: str
    hashes: np.ndarray
    origin: str = ""


def batches_of(model: Model, by: str | None, id: str | None = None) -> tuple[Model, list[Batch]]:
    """The rows of each value of a column, or all rows as one batch, and the model in their order.

    Rows are sorted by numbers or dates, those of one value as they were.

    Raises:
        ValueError: a value is missing, or the values are not in ascending order, or an id of a
            batch is not unique.
    """
    if by is None:
        return model, [Batch(model.table.source, _hashes_of(model, id, itertools.repeat("")))]
    names = model.table.typed(by).texts().tolist()
    key_of = {name: sort_key(name) for name in dict.fromkeys(names)}
    keys, form = [key_of[name] for name in names], key_of[names[0]][0]
    words = "a date such as 2026-03-31 or 31.03.2026, as other formats are not understood"
    model.table.check(by, np.array([_is_clear(x, key_of[x]) for x in names]), words)
    words = f"a value like {names[0]}, as the order of other formats is not known"
    model.table.check(by, np.array([key[0] == form for key in keys]), words)
    falls = [k for k in range(1, len(keys)) if keys[k] < keys[k - 1]]
    if falls:
        before, first = names[falls[0] - 1 : falls[0] + 1]
        hint = hint_of_restart(before, first) if len(falls) == 1 else ""
        if hint or form not in (_NUMBER, _DATE):
            hint = hint or f"; sort the rows by {by}"
            words = f"expected values in ascending order, got {first} after {before}{hint}."
            model.table.fail(by, falls[0], words)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        source = model.table.source
        model.table.say(f"{source}: the rows were sorted by {by}, those of one value as they were.")
        model, names = model.taken(np.array(order)), [names[k] for k in order]
        keys.sort()
    starts = [0, *(k for k in range(1, len(keys)) if keys[k] != keys[k - 1])]
    parts = np.split(_hashes_of(model, id, keys), starts[1:])
    return model, [Batch(names[k], part) for k, part in zip(starts, parts, strict=True)]


def sort_key(name: str) -> SortKey:
    """Numbers are compared as numbers, dates as dates, and names by the whole numbers in them.

    So day 9 comes before day 10, and 2026-03-01 is 2026/03/01 00:00:00.
    """
    text = name.strip()
    with suppress(InvalidOperation):
        if (number := Decimal(text)).is_finite():
            return _NUMBER, (number.normalize(),)
    with suppress(ValueError):
        return _DATE, (datetime.fromisoformat(as_iso(text)),)
    parts = re.split("([0-9]+)", text)
    return "#".join(parts[::2]), tuple(map(int, parts[1::2]))


def _is_clear(name: str, key: SortKey) -> bool:
    """Whether the order of names of this form is not in doubt."""
    if key[0] in (_NUMBER, _DATE):
        return True
    return bool(_CLEAR.match(name)) and not _CLOCK.search(name)


def hint_of_restart(before: str, after: str) -> str:
    """A hint if numbers begin again, such as those of weeks in a new year; else nothing."""
    if before not in _LAST_OF_YEAR or after != "1":
        return ""
    return "; for weeks or months of several years, name the year first, such as 2026-01"


def _hashes_of(model: Model, id: str | None, keys: Iterable[object]) -> np.ndarray:
    """A hash of what identifies each row in its batch, integers of 64 bits."""
    n = len(model.targets)
    if id is None:
        arrays = [np.asarray(x) for x in (*jax.tree.leaves(model.predictions), model.targets)]
        parts = [np.ascontiguousarray(x.reshape(n, -1)).view(np.uint8) for x in arrays]
        found = [row.tobytes() for row in np.concatenate(parts, axis=1)]
    else:
        # Numbers of a column with missing values are written as 12.0.
        names = [x.removesuffix(".0") for x in model.table.typed(id).texts().tolist()]
        found = [repr(pair).encode() for pair in zip(names, keys, strict=False)]
        first = {x: k for k, x in reversed([*enumerate(found)])}
        is_first = np.array([first[x] == k for k, x in enumerate(found)])
        model.table.check(id, is_first, "a value that no other row of its batch has")
    return np.frombuffer(b"".join(hashlib.sha256(x).digest()[:8] for x in found), "<i8")


def say_if_pairs(model: Model) -> None:
    """Says so if rows 1 and 2, 3 and 4 and so on say the same of an event and of its complement.

    The second row of such a pair is known from the first one, and evidence would count it twice.
    """
    n = len(model.targets) // 2 * 2
    if not isinstance(model.predictions, Labels) or n < 2 * _PAIRS:
        return
    probabilities = np.asarray(model.predictions.label_probabilities())
    if probabilities.shape[1] != 2:
        return
    stated = probabilities[:n, 1].reshape(-1, 2).sum(axis=1)
    events = model.targets[:n].reshape(-1, 2).sum(axis=1)
    if np.mean((np.abs(stated - 1) <= _ROUNDING) & (events == 1)) >= _MOST:
        model.table.say(
            f"{model.table.source}: rows come in pairs whose probabilities and events add up to 1, "
            "such as both teams of a game. The second one is known from the first, which makes "
            "alarms false: keep one row of each, or name a column of pairs with --cluster."
        )
