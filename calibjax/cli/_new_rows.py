"""Which rows of a file are new: each row of a stream counts once."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calibjax._base.text import listed
from calibjax.cli._batches import Batch, hint_of_restart, sort_key
from calibjax.frames import Model

# The probability with which chance alone may make a file look like a copy.
_CHANCE = 1e-3


class Counted(NamedTuple):
    """Rows that were counted: those of a batch in a file, where they came from, their hashes."""

    name: str
    origin: str
    hashes: np.ndarray


class NewRows(NamedTuple):
    """What a file adds.

    Args:
        model: the rows that are new, late ones first.
        batches: the batches that they belong to, with their hashes.
        updates: the names and the numbers of rows of what the monitor takes at once: late rows
            belong to the first batch that is new.
        n_known: the number of rows that were counted before.
        n_late: the number of new rows of batches that are not later than the last one.
        notes: what people are told of both.
    """

    model: Model
    batches: list[Batch]
    updates: list[tuple[str, int]]
    n_known: int = 0
    n_late: int = 0
    notes: Sequence[str] = ()


def new_rows(
    model: Model,
    batches: list[Batch],
    counted: list[Counted],
    by: str | None,
    has_ids: bool,
    again: bool,
) -> NewRows:
    """The rows of a file that were not counted before; all of them if they shall count again.

    Raises:
        ValueError: the file is a copy of one that was counted, nobody can tell which rows are new,
            or its batches cannot be compared with those before.
    """
    last = None if by is None or not counted else max((x.name for x in counted), key=sort_key)
    if by is not None and last is not None:
        _check_order(model, batches, by, last)
    if again or not counted:
        masks = [np.ones(len(x.hashes), bool) for x in batches]
    elif has_ids:
        known = np.concatenate([x.hashes for x in counted])
        masks = [~np.isin(x.hashes, known) for x in batches]
    else:
        masks = [_are_new(model.table.source, x, counted, by) for x in batches]
    is_new = np.concatenate(masks)
    pairs = zip(batches, masks, strict=True)
    found = [Batch(x.name, x.hashes[k]) for x, k in pairs if k.any()]
    late = [x for x in found if last is not None and sort_key(x.name) <= sort_key(last)]
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
    return NewRows(model, found, updates, n_known, n_late, notes)


def _check_order(model: Model, batches: list[Batch], by: str, last: str) -> None:
    """An error if batches cannot be compared with the last one, or numbers begin again."""
    first = batches[0].name
    if sort_key(first)[0] != sort_key(last)[0]:
        words = f"expected a value like {last}, the last one that was counted, got {first}."
        model.table.fail(by, 0, words)
    if hint := hint_of_restart(last, first):
        words = f"expected values after {last}, the last one that was counted, got {first}{hint}."
        model.table.fail(by, 0, words)


def _are_new(source: str, batch: Batch, counted: list[Counted], by: str | None) -> np.ndarray:
    """Which rows of a batch were not counted, as their numbers tell."""
    n = len(batch.hashes)
    rows = f"{n} rows{'' if by is None else f' of {batch.name}'}"
    is_same = [by is not None and sort_key(x.name) == sort_key(batch.name) for x in counted]
    same = [x for x, k in zip(counted, is_same, strict=True) if k]
    if same:
        known = np.concatenate([x.hashes for x in same])
        is_new = _are_beyond(batch.hashes, known)
        n_found = n - int(is_new.sum())
        _, numbers = np.unique(known, return_counts=True)
        share_alike = (1 + numbers[numbers > 1].sum()) / (1 + len(known))
        if n_found in (0, len(known)) or (n_found == n and share_alike**n < _CHANCE):
            return is_new
        raise ValueError(
            f"{source}: {n_found} of the {rows} match the {len(known)} rows already counted, from "
            f"{same[-1].origin}. Late rows, or corrected ones? Give the whole batch, or name the "
            "column that identifies rows with --id in a new --state; --again counts all of them."
        )
    found = np.isin(batch.hashes, np.concatenate([x.hashes for x in counted])).sum()
    for x in counted:
        n_before = len(x.hashes)
        if by is None and np.array_equal(x.hashes, batch.hashes):
            raise ValueError(
                f"{source}: the {rows} were counted before, from {x.origin}; --again counts them."
            )
        most = min(n, n_before)
        if 2 * found <= most:
            continue
        n_found = n - int(_are_beyond(batch.hashes, x.hashes).sum())
        if 2 * n_found > most and _excess(batch.hashes, x.hashes) > _least_excess(len(counted)):
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


def _excess(new: np.ndarray, old: np.ndarray) -> float:
    """How many more rows are equal than by chance, in standard deviations.

    If rows of both files are drawn from one distribution, any of them are as likely the old ones.
    With x = 1 for the old ones, a share r of all, the sum over pairs of equal rows of
    -(x_i - r) (x_j - r) / (n - 1), where n rows are equal, has the mean 0 and the variance
    (r (1 - r))² Σ 2 n / (n - 1).
    """
    _, cells = np.unique(np.concatenate([old, new]), return_inverse=True)
    n, share = np.bincount(cells), len(old) / len(cells)
    n_old = np.bincount(cells[: len(old)], minlength=n.size)[n > 1]
    n = n[n > 1]
    squares = n_old * (1 - share) ** 2 + (n - n_old) * share**2
    total = np.sum((squares - (n_old - share * n) ** 2) / (n - 1))
    return float(total / (share * (1 - share) * math.sqrt(2 * max(np.sum(n / (n - 1)), 1))))


def _least_excess(n_compared: int) -> float:
    """What chance alone hardly exceeds in a call that compares so many files."""
    return math.sqrt(2 * math.log(n_compared / _CHANCE))
