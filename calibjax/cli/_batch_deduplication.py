"""Batches of the rows of a file, and those that a monitor has counted, which count only once.

A row is known by a hash of its numbers, of 64 bits: of 100 000 batches, no two have the same sums
of hashes by chance.
"""

import base64
import dataclasses
import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from calibjax.cli._terminal import BadInput
from calibjax.frames import Model, as_iso

# Dates that are not understood: nobody knows whether the day or the month is first, or which
# century it is, and names of months are not ordered by the alphabet.
_MONTHS = (
    "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|"
    "nov(ember)?|dec(ember)?"
)
_UNCLEAR = re.compile(
    r"\s*[0-9]{1,2}([/-])[0-9]{1,2}\1[0-9]{4}\b"
    r"|\s*[0-9]{1,2}([./-])[0-9]{1,2}\2[0-9]{2}\s*$"
    rf"|(?=.*[0-9]).*\b({_MONTHS})\b",
    re.IGNORECASE,
)
# What is ordered without a doubt: numbers, and dates with the year first.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\b")
#: How many rows are remembered, of 4 bytes each: 256 kB.
N_REMEMBERED = 2**16
# So many different rows do not come again by chance, nor does a sequence of so many runs of equal
# rows.  A sorted table of few different rows has few runs.
_ROWS, _RUNS = 10, 30
# Rows tell a batch if nearly all of them differ.
_DIFFERENT = 0.9


class Batch(NamedTuple):
    """Rows of a file that come one after the other.

    Args:
        name: their value of the column of --by; without one, the file.
        start: the first row, counted from 0.
        hashes: of its rows.
    """

    name: str
    start: int
    hashes: np.ndarray

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        return len(self.hashes)

    @property
    def fingerprint(self) -> tuple[str, str]:
        """Of the rows in their order, and in any order, such as those of a table sorted anew."""
        # Sums overflow, as they should.
        odd = 2 * np.arange(self.n_rows, dtype=np.uint64) + 1
        in_order, in_any_order = np.sum(self.hashes * odd), np.sum(self.hashes)
        return f"{in_order:016x}", f"{in_any_order:016x}"

    def is_telling(self, in_order: bool) -> bool:
        """Whether other rows with its fingerprint are a copy; a few may be alike by chance."""
        n_runs = 1 + int(np.count_nonzero(self.hashes[1:] != self.hashes[:-1]))
        return len(np.unique(self.hashes)) >= _ROWS or (in_order and n_runs >= _RUNS)


class NewFile(NamedTuple):
    """A file that is to be counted: its content, the column of --by or None, and its batches."""

    model: Model
    by: str | None
    batches: list[Batch]

    @classmethod
    def of(cls, model: Model, by: str | None) -> Self:
        """The rows of each value of a column, or all rows of the file as one batch.

        Rows are sorted by numbers or dates, those of one value as they were.

        Raises:
            ValueError: a value is missing, or the values are not in ascending order.
        """
        source = model.table.source
        if by is None:
            return cls(model, by, [Batch(source, 0, _hashes_of(model))])
        values = texts_of(model, by)
        is_unclear = np.array([_UNCLEAR.match(name) is not None for name in values.tolist()])
        words = "a date such as 2026-03-31 or 31.03.2026, as other formats are not understood"
        model.table.check(by, ~is_unclear, words)
        keys = [sort_key(name) for name in values.tolist()]
        order = _order_of(values.tolist(), keys)
        if order is not None:
            model, values, keys = _taken(model, by, order), values[order], [keys[k] for k in order]
        starts = [0, *(k for k in range(1, len(keys)) if keys[k] != keys[k - 1]), len(keys)]
        hashes = _hashes_of(model)
        batches = [
            Batch(str(values[start]), start, hashes[start:stop])
            for start, stop in zip(starts, starts[1:], strict=False)
        ]
        for before, batch in zip(batches, batches[1:], strict=False):
            if keys[batch.start] < keys[before.start]:
                words = f"expected values in ascending order, got {batch.name} after {before.name}"
                hint = _hint_of_restart(before.name, batch.name) or f"; sort the rows by {by}"
                model.table.fail(by, batch.start, f"{words}{hint}.")
        return cls(model, by, batches)


def texts_of(model: Model, name: str) -> np.ndarray:
    """A column as texts, one for each target."""
    texts, n = model.table.texts(name), len(model.targets)
    if len(texts) != n:
        raise BadInput(
            f"{model.table.source}, column {name}: expected one value for each of {n} rows, got "
            f"{len(texts)}."
        )
    return texts


def sort_key(name: str) -> tuple[int, Any]:
    """What values of --by are ordered by.

    Numbers are compared as numbers, and texts with the whole numbers in them as numbers: 2026-03-31
    comes before 2026-04-01, as 31.03.2026 does, and day 9 before day 10.
    """
    name = as_iso(name)
    try:
        number = Decimal(name)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite():
        return 0, number
    # Texts and digits by turns, so that like is compared with like.
    return 1, [int(x) if k % 2 else x for k, x in enumerate(re.split("([0-9]+)", name))]


def _order_of(values: list[str], keys: list[tuple[int, Any]]) -> np.ndarray | None:
    """The order of the rows of numbers or dates that fall; None of others, which stay or fail."""
    falls = [k for k in range(1, len(keys)) if keys[k] < keys[k - 1]]
    begins_again = len(falls) == 1 and _hint_of_restart(*values[falls[0] - 1 : falls[0] + 1])
    are_clear = all(
        kind == 0 or _DATE.match(as_iso(x)) for (kind, _), x in zip(keys, values, strict=True)
    )
    if not falls or begins_again or not are_clear:
        return None
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


def _taken(model: Model, by: str, order: np.ndarray) -> Model:
    """The model with its rows in another order."""
    table = model.table
    table.say(f"{table.source}: the rows were sorted by {by}, those of one value as they were.")
    predictions = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[order]), model.predictions)
    return dataclasses.replace(
        model, table=table.taken(order), predictions=predictions, targets=model.targets[order]
    )


def _hint_of_restart(before: str, after: str) -> str:
    """A hint if numbers begin again, such as those of weeks in a new year; else nothing."""
    is_number = before.strip().isdigit() and after.strip().isdigit()
    if not (is_number and int(before) in (12, 52, 53, 365, 366) and int(after) == 1):
        return ""
    return "; for weeks or months of several years, name the year first, such as 2026-01"


def _hashes_of(model: Model) -> np.ndarray:
    n = len(model.targets)
    arrays = [np.asarray(x) for x in (*jax.tree.leaves(model.predictions), model.targets)]
    parts = [np.ascontiguousarray(x.reshape(n, -1)).view(np.uint8) for x in arrays]
    rows = np.concatenate(parts, axis=1)
    return np.frombuffer(b"".join(hashlib.sha256(x.tobytes()).digest()[:8] for x in rows), "<u8")


class Counted(NamedTuple):
    """A batch that was counted: its name, its size, its fingerprint, and the number of the call."""

    name: str
    n_rows: int
    fingerprint: tuple[str, str]
    call: int


@dataclasses.dataclass(frozen=True)
class History:
    """What all calls have counted.

    Args:
        calls: the file and the time of each call.
        counted: the batches of all calls, in their order.
        rows: 32 bits of the hash of each of the rows that were counted last.
    """

    calls: tuple[tuple[str, str], ...] = ()
    counted: tuple[Counted, ...] = ()
    rows: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.uint32))

    @property
    def n_rows(self) -> int:
        """The number of rows in all calls."""
        return sum(batch.n_rows for batch in self.counted)

    def after(self, file: NewFile, time: str) -> "History":
        """The history with the batches of one more file."""
        counted = [Counted(x.name, x.n_rows, x.fingerprint, len(self.calls)) for x in file.batches]
        rows = [self.rows, *(x.hashes.astype(np.uint32) for x in file.batches)]
        return History(
            (*self.calls, (file.model.table.source, time)),
            (*self.counted, *counted),
            np.concatenate(rows)[-N_REMEMBERED:],
        )

    def to_dict(self) -> dict[str, Any]:
        """What JSON takes."""
        rows = base64.b64encode(self.rows.astype("<u4").tobytes()).decode()
        return {"calls": self.calls, "counted": self.counted, "rows": rows}

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> Self:
        """The history that `to_dict` has written."""
        return cls(
            tuple((file, time) for file, time in found["calls"]),
            tuple(Counted(x, n, (a, b), call) for x, n, (a, b), call in found["counted"]),
            np.frombuffer(base64.b64decode(found["rows"]), "<u4"),
        )

    def check_new(self, path: Path, file: NewFile) -> None:
        """An error if rows were counted before, or do not come after those that were.

        `path` is where the monitor is kept.
        """
        shared = self._shared_rows(file)
        if file.by is not None and self.counted:
            self._check_order(path, file, shared)
        self._check_copies(file)
        self._check_corrections(file, shared)

    def remembered(self) -> list[np.ndarray]:
        """The rows that are remembered of each batch, none of the first ones."""
        ends = len(self.rows) - self.n_rows + np.cumsum([x.n_rows for x in self.counted], dtype=int)
        return np.split(self.rows, ends[:-1].clip(0))

    def _shared_rows(self, file: NewFile) -> list[tuple[int, int, int]]:
        """The numbers of a batch of the file and of one that was counted, and of rows in both."""
        ours = _frame([x.hashes.astype(np.uint32) for x in file.batches])
        both = ours.join(_frame(self.remembered()), on="row", suffix="_counted")
        return both.group_by("batch", "batch_counted").len().rows()

    def _check_order(self, path: Path, file: NewFile, shared: list[tuple[int, int, int]]) -> None:
        """An error unless all values of --by come after those that were counted."""
        last = max((x.name for x in self.counted), key=sort_key)
        old = [x for x in file.batches if sort_key(x.name) <= sort_key(last)]
        if not old:
            return
        n, n_before = sum(x.n_rows for x in old), 0
        for k, batch in enumerate(old):
            same = {
                j for j, x in enumerate(self.counted) if sort_key(x.name) == sort_key(batch.name)
            }
            is_copy = any(self.counted[j].fingerprint[1] == batch.fingerprint[1] for j in same)
            found = max((size for i, j, size in shared if i == k and j in same), default=0)
            n_before += batch.n_rows if is_copy else found
        if 2 * n_before > n:
            reason = f"{n_before} of the {n} rows up to then were counted before"
        else:
            reason = f"{n - n_before} of the {n} rows up to then were not counted, and come late"
        new = file.batches[len(old) :]
        hint = f"from {new[0].name} on they are new" if new else "none is new"
        raise BadInput(
            f"{file.model.table.source}, column {file.by}: expected values after {last}, the last "
            f"one that {path} has counted, got {old[0].name}; {hint}; {reason}; "
            f"--again counts all rows{_hint_of_restart(last, old[0].name)}."
        )

    def _check_copies(self, file: NewFile) -> None:
        """An error if a batch, or the beginning of the file, was counted by whatever name."""
        parts, n = file.batches, len(file.model.targets)
        if file.by is None:
            # A log that has grown begins with what it was.
            sizes = sorted({x.n_rows for x in self.counted if x.n_rows <= n})
            parts = [Batch("", 0, parts[0].hashes[:size]) for size in sizes]
        for k, order in enumerate(("", " in another order")):
            seen = {(x.n_rows, x.fingerprint[k]): x for x in self.counted}
            for batch in parts:
                copy = seen.get((batch.n_rows, batch.fingerprint[k]))
                is_whole = file.by is None and batch.n_rows == n
                is_same_file = is_whole and not order
                if copy is None or not (is_same_file or batch.is_telling(in_order=not order)):
                    continue
                rows = f"the {n} rows" if is_whole else f"the first {batch.n_rows} rows"
                rows = rows if file.by is None else f"the rows of {batch.name}"
                raise BadInput(
                    f"{file.model.table.source}: {rows} were counted before{order}, from "
                    f"{self._call_of(copy, file.by)}; --again counts them again."
                )

    def _check_corrections(self, file: NewFile, shared: list[tuple[int, int, int]]) -> None:
        """An error if most rows of a batch were counted before, such as in a corrected file.

        It names the most similar batch that was counted.
        """
        sizes = list(map(len, self.remembered()))
        for k, j, n_rows in sorted(shared, key=lambda x: (x[0], -x[2], x[1])):
            batch, before = file.batches[k], self.counted[j]
            if n_rows < _ROWS or 2 * n_rows <= min(batch.n_rows, sizes[j]):
                continue
            of_batch = "" if file.by is None else f" of {batch.name}"
            raise BadInput(
                f"{file.model.table.source}: {n_rows} of the {batch.n_rows} rows{of_batch} are "
                f"among the {before.n_rows} that were counted before, from "
                f"{self._call_of(before, file.by)}; give only new rows, or --again counts all of "
                "them."
            )

    def _call_of(self, batch: Counted, by: str | None) -> str:
        """Where a batch came from, and when."""
        source, time = self.calls[batch.call]
        return f"{source}{'' if by is None else f', as {batch.name},'} at {time}"


def _frame(parts: Sequence[np.ndarray]) -> pl.DataFrame:
    """The rows of those batches that they tell, each row once; others are alike by chance."""
    different = map(np.unique, parts)
    told = [
        x if len(x) >= _DIFFERENT * len(rows) else x[:0]
        for x, rows in zip(different, parts, strict=True)
    ]
    numbers = np.repeat(np.arange(len(told)), [len(x) for x in told])
    return pl.DataFrame({"row": np.concatenate([np.zeros(0, np.uint32), *told]), "batch": numbers})
