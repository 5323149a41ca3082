"""A file in batches, all of it or day after day, and fingerprints of rows that were seen before."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.cli._table import FileTable
from calibjax.evaluation import Model, as_iso

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


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of a file that come one after the other.

    Args:
        name: their value of the column of --by; without one, the file.
        start: the first row, counted from 0.
        n_rows: how many there are.
    """

    name: str
    start: int
    n_rows: int


def batches_of(model: Model, by: str | None) -> list[Batch]:
    """The rows of each value of a column, or all rows of the file as one batch.

    Raises:
        ValueError: a value is missing, or the values are not in ascending order.
    """
    table, n = model.table, len(model.targets)
    if by is None:
        return [Batch(table.source, 0, n)]
    values = _values_of(model, by)
    changes = np.flatnonzero(values[1:] != values[:-1]).tolist()
    starts = [0, *(k + 1 for k in changes if place_of(values[k]) != place_of(values[k + 1]))]
    found = [
        Batch(str(values[start]), start, stop - start)
        for start, stop in zip(starts, [*starts[1:], n], strict=True)
    ]
    for before, batch in zip(found, found[1:], strict=False):
        if not place_of(batch.name) > place_of(before.name):
            words = f"expected values in ascending order, got {batch.name} after {before.name}"
            hint = restart_of(before.name, batch.name) or f"; sort the rows by {by}"
            table.fail(by, batch.start, f"{words}{hint}.")
    return found


def in_order_of(model: Model, by: str | None) -> Model:
    """The model with its rows sorted by numbers or dates, those of one value as they were."""
    if by is None:
        return model
    table, values = model.table, _values_of(model, by)
    places = [place_of(str(x)) for x in values]
    falls = [k for k in range(1, len(places)) if places[k] < places[k - 1]]
    is_clear = all(
        kind == 0 or _DATE.match(as_iso(x))
        for (kind, _), x in zip(places, values.tolist(), strict=True)
    )
    begins_again = len(falls) == 1 and restart_of(*values[falls[0] - 1 :][:2].tolist())
    if not falls or not is_clear or begins_again:
        return model
    assert isinstance(table, FileTable)
    order = np.array(sorted(range(len(places)), key=places.__getitem__))
    table.say(f"{table.source}: the rows were sorted by {by}, those of one value as they were.")
    predictions = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[order]), model.predictions)
    return dataclasses.replace(
        model, table=table.taken(order), predictions=predictions, targets=model.targets[order]
    )


def restart_of(before: str, after: str) -> str:
    """A hint if numbers begin again, such as those of weeks in a new year; else nothing."""
    is_number = before.strip().isdigit() and after.strip().isdigit()
    if not (is_number and int(before) in (12, 52, 53, 365, 366) and int(after) == 1):
        return ""
    return "; for weeks or months of several years, name the year first, such as 2026-01"


def _values_of(model: Model, by: str) -> np.ndarray:
    """The values of --by, as texts."""
    table, n = model.table, len(model.targets)
    values = table.texts(by)
    if len(values) != n:
        raise ValueError(f"{table.source}, column {by}: expected one value for each of {n} rows.")
    is_unclear = np.array([_UNCLEAR.match(str(name)) is not None for name in values])
    words = "a date such as 2026-03-31 or 31.03.2026, as other formats are not understood"
    table.check(by, ~is_unclear, words)
    return values


def place_of(name: str) -> tuple[int, Any]:
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


def data_of(
    model: Model, clusters: np.ndarray | None, rows: np.ndarray, size: int
) -> tuple[Any, np.ndarray, dict[str, Any]]:
    """Predictions and targets of some rows, filled up to a number of them, and what goes with them.

    These are the clusters, and the mask of the rows.  If all have the same number of rows, they are
    compiled once.
    """
    is_row = np.arange(size) < rows.size
    rows = rows[np.minimum(np.arange(size), rows.size - 1)]
    # With NumPy: jax would compile for each number of rows.
    predictions = jax.tree.map(lambda x: np.asarray(x)[rows], model.predictions)
    options: dict[str, Any] = {"where": is_row}
    if clusters is not None:
        options["clusters"] = clusters[rows]
    return predictions, model.targets[rows], options


# So many different rows do not come again by chance, nor does a sequence of so many runs of equal
# rows.  A sorted table of few different rows has few runs.
_ROWS, _RUNS = 10, 30


class Fingerprint(NamedTuple):
    """Of rows in their order, and of the same rows in any order, such as a table sorted anew."""

    in_order: str
    in_any_order: str


class Fingerprints:
    """Fingerprints of the rows of a file: sums of hashes of the numbers in each row.

    They have 64 bits: of 100 000 batches, no two have the same by chance.
    """

    def __init__(self, model: Model) -> None:
        n = len(model.targets)
        arrays = [np.asarray(x) for x in (*jax.tree.leaves(model.predictions), model.targets)]
        parts = [np.ascontiguousarray(x.reshape(n, -1)).view(np.uint8) for x in arrays]
        self._rows = np.concatenate(parts, axis=1)
        hashes = b"".join(hashlib.sha256(row.tobytes()).digest()[:8] for row in self._rows)
        self._hashes = np.frombuffer(hashes, "<u8")

    def of(self, batch: Batch) -> Fingerprint:
        """The fingerprint of a batch."""
        hashes = self._hashes[batch.start : batch.start + batch.n_rows]
        return _fingerprints(hashes, [batch.n_rows])[0]

    def rows_of(self, batch: Batch) -> np.ndarray:
        """32 bits for each row of a batch."""
        return self._hashes[batch.start :][: batch.n_rows].astype(np.uint32)

    def of_first_rows(self, sizes: Sequence[int]) -> list[Fingerprint]:
        """The fingerprints of the first rows, for several numbers of rows."""
        return _fingerprints(self._hashes, sizes)

    def is_telling(self, batch: Batch, in_order: bool) -> bool:
        """Whether other rows with its fingerprint are a copy; a few may be alike by chance."""
        rows = self._rows[batch.start : batch.start + batch.n_rows]
        kinds = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        n_runs = 1 + np.count_nonzero(kinds[1:] != kinds[:-1])
        return len(np.unique(kinds)) >= _ROWS or (in_order and bool(n_runs >= _RUNS))


def _fingerprints(hashes: np.ndarray, sizes: Sequence[int]) -> list[Fingerprint]:
    # Sums overflow, as they should.
    places = 2 * np.arange(len(hashes), dtype=np.uint64) + 1
    sums = np.cumsum(hashes * places), np.cumsum(hashes)
    return [Fingerprint(*(f"{x[size - 1]:016x}" for x in sums)) for size in sizes]
