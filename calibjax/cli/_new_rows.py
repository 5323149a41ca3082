"""Batches of the rows of a file, in the order of time, and which rows are new: each counts once."""

import hashlib
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax._base.text import listed
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


# The probability with which chance alone may make a file look like a copy.
_CHANCE = 1e-3


class NewRows(NamedTuple):
    """What a file adds.

    Args:
        model: the rows that are new, late ones first.
        batches: the batches that they belong to, with their hashes.
        updates: the names and the numbers of rows of what the monitor takes at once: late rows
            belong to the first batch that is new.
        numbers: how many rows are new, were counted before, or are new but of batches that are not
            later than the last one.
        notes: messages about both.
    """

    model: Model
    batches: list[Batch]
    updates: list[tuple[str, int]]
    numbers: dict[str, int]
    notes: list[str]


def new_rows(
    model: Model,
    batches: list[Batch],
    counted: list[Batch],
    by: str | None,
    has_ids: bool,
    again: bool,
) -> NewRows:
    """The rows of a file that were not counted before; all of them if they shall count again.

    Raises:
        ValueError: the file is a copy of a counted one, its new rows cannot be identified, or its
            batches cannot be compared with earlier ones.
    """
    days = _pooled(counted, by)
    hashes, last = np.concatenate([x.hashes for x in batches]), None
    if by is not None and counted:
        last = max(days)
        _check_order(model, batches[0], by, days[last].name)
    is_new = np.ones(len(hashes), bool)
    if counted and not again:
        is_new = ~np.isin(hashes, np.concatenate([x.hashes for x in counted]))
    masks = np.split(is_new, np.cumsum([len(x.hashes) for x in batches])[:-1])
    if not (again or has_ids):
        source = model.table.source
        masks = [_are_new(source, x, k, days, by) for x, k in zip(batches, masks, strict=True)]
        is_new = np.concatenate(masks)
    found = [x._replace(hashes=x.hashes[k]) for x, k in zip(batches, masks, strict=True) if k.any()]
    late = [x for x in found if last is not None and sort_key(x.name) <= last]
    on_time = found[len(late) :]
    n_late, n_known = sum(len(x.hashes) for x in late), int(np.sum(~is_new))
    updates = [(x.name, len(x.hashes)) for x in on_time]
    notes = [f"{n_known} of {len(is_new)} rows were counted before: left out."] if n_known else []
    if late:
        names = listed([x.name for x in late])
        first = on_time[0].name if on_time else "a batch of their own"
        notes.append(f"{n_late} late rows, of {names}: counted in {first}.")
        name, n = updates[0] if updates else (f"late rows of {names}", 0)
        updates[:1] = [(name, n + n_late)]
    if n_known:
        model = model.taken(np.flatnonzero(is_new))
    numbers = {"n_new": len(hashes) - n_known, "n_known": n_known, "n_late": n_late}
    return NewRows(model, found, updates, numbers, notes)


def _pooled(counted: Sequence[Batch], by: str | None) -> dict[Any, Batch]:
    """The rows of each file or, with a column of batches, of each batch, by its `sort_key`."""
    parts: dict[Any, list[Batch]] = defaultdict(list)
    for k, x in enumerate(counted):
        parts[k if by is None else sort_key(x.name)].append(x)
    return {
        k: x[-1]._replace(hashes=np.concatenate([y.hashes for y in x])) for k, x in parts.items()
    }


def _check_order(model: Model, first: Batch, by: str, last: str) -> None:
    """An error if batches cannot be compared with the last one, or numbers begin again."""
    hint = hint_of_restart(last, first.name)
    if hint or sort_key(first.name)[0] != sort_key(last)[0]:
        words = f"{last}, the last one that was counted, got {first.name}{hint}."
        model.table.fail(by, 0, f"expected values that are comparable with {words}")


def _are_new(
    source: str, batch: Batch, is_new: np.ndarray, days: dict[Any, Batch], by: str | None
) -> np.ndarray:
    """Which rows of a batch were not counted, as numbers tell, of which some are new for sure."""
    hashes, n = batch.hashes, len(batch.hashes)
    rows = f"{n} rows{'' if by is None else f' of {batch.name}'}"
    same = None if by is None else days.get(sort_key(batch.name))
    if same is not None:
        is_new = _are_beyond(hashes, same.hashes)
        n_found, n_before = n - int(is_new.sum()), len(same.hashes)
        _, numbers = np.unique(same.hashes, return_counts=True)
        share_alike = (1 + numbers[numbers > 1].sum()) / (1 + n_before)
        if n_found in (0, n_before) or (n_found == n and share_alike**n < _CHANCE):
            return is_new
        raise ValueError(
            f"{source}: {n_found} of the {rows} match the {n_before} rows already counted, from "
            f"{same.origin}. Late rows, or corrected ones? Give the whole batch, or name the "
            "column that identifies rows with --id in a new --state; --again counts all of them."
        )
    n_seen = n - int(is_new.sum())
    for x in days.values():
        if by is None and np.array_equal(x.hashes, hashes):
            raise ValueError(
                f"{source}: the {rows} were counted before, from {x.origin}; --again counts them."
            )
        n_before = len(x.hashes)
        most = min(n, n_before)
        n_found = n - int(_are_beyond(hashes, x.hashes).sum()) if 2 * n_seen > most else 0
        if 2 * n_found > most and _chance(hashes, x.hashes) < _CHANCE / len(days):
            raise ValueError(
                f"{source}: {n_found} of the {rows} match the {n_before} rows already counted, "
                f"from {x.origin}; give only new rows, or --again counts all of them."
            )
    return np.ones(n, bool)


def _are_beyond(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which rows are more than there are equal ones among those that are known."""
    known, order = np.sort(known), np.argsort(hashes, kind="stable")
    values = hashes[order]
    number = np.arange(len(values)) - np.searchsorted(values, values)
    n_known = np.searchsorted(known, values, "right") - np.searchsorted(known, values)
    found = np.empty(len(values), bool)
    found[order] = number >= n_known
    return found


def _chance(new: np.ndarray, old: np.ndarray) -> float:
    """The probability that chance alone makes rows of two files as equal as they are.

    If the rows of both are drawn from one distribution, any of them are as likely the old ones.
    With x = 1 for the old ones, a share r of all, the sum over pairs of equal rows of
    -(x_i - r) (x_j - r) / (n - 1), where n rows are equal, has the mean 0, the variance
    (r (1 - r))² Σ 2 n / (n - 1), and nearly a normal distribution.  Files with the same rows have
    the exact probability Π C(n, n / 2) / C(N, N / 2).
    """
    _, cells = np.unique(np.concatenate([old, new]), return_inverse=True)
    n, share = np.bincount(cells), len(old) / len(cells)
    n_old = np.bincount(cells[: len(old)], minlength=n.size)
    if np.array_equal(2 * n_old, n):
        factorials = np.cumsum(np.log(np.maximum(np.arange(len(cells) + 1), 1)))
        choices = factorials[n].sum() - 2 * factorials[n_old].sum()
        return math.exp(choices - factorials[-1] + 2 * factorials[len(old)])
    squares = n_old * (1 - share) ** 2 + (n - n_old) * share**2 - (n_old - share * n) ** 2
    several = n > 1
    n = n[several]
    deviation = share * (1 - share) * math.sqrt(2 * max(np.sum(n / (n - 1)), 1))
    return math.erfc(np.sum(squares[several] / (n - 1)) / deviation / math.sqrt(2)) / 2
