"""Batches of the rows of a file, in the order of time, and the keys by which each counts once."""

import hashlib
import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._data.distribution import Labels
from calibjax.frames import Model, as_iso

# What is ordered without a doubt, besides numbers: a name with one number, and a date with the year
# first; of others nobody knows whether the day or the month is first.
_CLEAR = re.compile(r"[^0-9]*[0-9]*[^0-9]*$|\s*[0-9]{4}[^0-9].*$")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
# Numbers of weeks, months and days after which a new year begins with 1.
_LAST_OF_YEAR = "12", "52", "53", "365", "366"
# Rows tell a batch if there are so many different ones, and nearly all of them differ; others are
# alike by chance.
MIN_ROWS, _DIFFERENT = 10, 0.9
# The least number of pairs, the share of rows in them, and the rounding of their probabilities.
_PAIRS, _MOST, _ROUNDING = 10, 0.9, 2e-3
#: How many rows are remembered.
N_REMEMBERED = 2**16


class Batch(NamedTuple):
    """Rows that come one after the other.

    Args:
        name: their value of the column of --by; without one, the file.
        key: what counts once: the name, or without --by a digest of the rows.
        hashes: a hash of the numbers of each row, ``[n]``.
    """

    name: str
    key: str
    hashes: np.ndarray

    @property
    def telling(self) -> list[int]:
        """Hashes by which a copy is known, though corrected; none if rows are few or alike."""
        found, n = np.unique(self.hashes), len(self.hashes)
        return found[:N_REMEMBERED].tolist() if len(found) >= max(MIN_ROWS, _DIFFERENT * n) else []


def batches_of(model: Model, by: str | None) -> tuple[Model, list[Batch]]:
    """The rows of each value of a column, or all rows as one batch, and the model in their order.

    Rows are sorted by numbers or dates, those of one value as they were.

    Raises:
        ValueError: a value is missing, or the values are not in ascending order.
    """
    if by is None:
        hashes = _hashes_of(model)
        key = hashlib.sha256(hashes.tobytes()).hexdigest()
        return model, [Batch(model.table.source, key, hashes)]
    values = model.table.typed(by).texts()
    keys = [sort_key(name) for name in values.tolist()]

    def are_like(pattern: re.Pattern[str]) -> np.ndarray:
        """Which values are numbers, or texts of this pattern."""
        pairs = zip(keys, values.tolist(), strict=True)
        return np.array([kind == 0 or bool(pattern.match(as_iso(x))) for (kind, _), x in pairs])

    words = "a date such as 2026-03-31 or 31.03.2026, as other formats are not understood"
    model.table.check(by, are_like(_CLEAR), words)
    falls = [k for k in range(1, len(keys)) if keys[k] < keys[k - 1]]
    if falls:
        before, first = values[falls[0] - 1 : falls[0] + 1].tolist()
        hint = hint_of_restart(before, first) if len(falls) == 1 else ""
        if hint or not are_like(_DATE).all():
            hint = hint or f"; sort the rows by {by}"
            words = f"expected values in ascending order, got {first} after {before}{hint}."
            model.table.fail(by, falls[0], words)
        order = np.array(sorted(range(len(keys)), key=keys.__getitem__))
        source = model.table.source
        model.table.say(f"{source}: the rows were sorted by {by}, those of one value as they were.")
        model, values, keys = model.taken(order), values[order], [keys[k] for k in order]
    starts = [0, *(k for k in range(1, len(keys)) if keys[k] != keys[k - 1])]
    parts = np.split(_hashes_of(model), starts[1:])
    names = [str(values[start]) for start in starts]
    return model, list(map(Batch, names, [as_iso(name.strip()) for name in names], parts))


def sort_key(name: str) -> tuple[int, Any]:
    """What values of --by are ordered by.

    Numbers are compared as numbers, and texts with the whole numbers in them as numbers: 2026-03-31
    comes before 2026-04-01, as 31.03.2026 does, and day 9 before day 10.
    """
    name = as_iso(name)
    with suppress(InvalidOperation):
        if (number := Decimal(name)).is_finite():
            return 0, number
    # Texts and digits by turns, so that like is compared with like.
    return 1, [int(x) if k % 2 else x for k, x in enumerate(re.split("([0-9]+)", name))]


def hint_of_restart(before: str, after: str) -> str:
    """A hint if numbers begin again, such as those of weeks in a new year; else nothing."""
    if before not in _LAST_OF_YEAR or after != "1":
        return ""
    return "; for weeks or months of several years, name the year first, such as 2026-01"


def _hashes_of(model: Model) -> np.ndarray:
    """A hash of the numbers of each row, integers of 64 bits."""
    n = len(model.targets)
    arrays = [np.asarray(x) for x in (*jax.tree.leaves(model.predictions), model.targets)]
    parts = [np.ascontiguousarray(x.reshape(n, -1)).view(np.uint8) for x in arrays]
    rows = np.concatenate(parts, axis=1)
    return np.frombuffer(b"".join(hashlib.sha256(x.tobytes()).digest()[:8] for x in rows), "<i8")


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
