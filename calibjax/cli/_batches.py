"""A file in batches, all of it or day after day, and fingerprints of rows that were seen before."""

import dataclasses
import hashlib
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import jax
import numpy as np

from calibjax.evaluation import Model, with_year_first

# Dates of which nobody knows whether the day or the month is first.
_UNCLEAR = re.compile(r"\s*[0-9]{1,2}([/-])[0-9]{1,2}\1[0-9]{4}\b")


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
    values = table.texts(by)
    if len(values) != n:
        raise ValueError(f"{table.source}, column {by}: expected one value for each of {n} rows.")
    is_unclear = np.array([_UNCLEAR.match(str(name)) is not None for name in values])
    table.check(by, ~is_unclear, "a date such as 2026-03-31")
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])).tolist()
    found = [
        Batch(str(values[start]), start, stop - start)
        for start, stop in zip(starts, [*starts[1:], n], strict=True)
    ]
    for before, batch in zip(found, found[1:], strict=False):
        if not place_of(batch.name) > place_of(before.name):
            words = f"expected values in ascending order, got {batch.name} after {before.name}; "
            table.fail(by, batch.start, f"{words}sort the rows by {by}.")
    return found


def place_of(name: str) -> tuple[int, Any]:
    """What values of --by are ordered by.

    Numbers are compared as numbers, and texts with the whole numbers in them as numbers: 2026-03-31
    comes before 2026-04-01, as 31.03.2026 does, and day 9 before day 10.
    """
    name = with_year_first(name)
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
