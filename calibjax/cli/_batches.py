"""A file in batches: all of it, or the rows of one day after the other."""

import dataclasses
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import jax
import numpy as np

from calibjax.cli._columns import Model
from calibjax.cli._errors import BadInput


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
        BadInput: a value is missing, or the values are not in ascending order.
    """
    table, n = model.table, len(model.targets)
    if by is None:
        return [Batch(str(table.path), 0, n)]
    column = table.column(by)
    if len(column) != n or column.dtype.is_nested():
        raise BadInput(f"{table.path}, column {by}: expected one value for each of {n} rows.")
    table.check(by, column.is_not_null().to_numpy(), "a value")
    values = column.to_numpy()
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])).tolist()
    found = [
        Batch(str(column[start]), start, stop - start)
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
    comes before 2026-04-01, and day 9 before day 10.
    """
    try:
        number = Decimal(name)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite():
        return 0, number
    # Texts and digits by turns, so that like is compared with like.
    return 1, [int(x) if k % 2 else x for k, x in enumerate(re.split("([0-9]+)", name))]


def data_of(model: Model, batch: Batch, size: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Predictions and targets of a batch, filled up to a number of rows, and the mask of its rows.

    If all have the same number of rows, they are compiled once.
    """
    place = np.arange(size)
    rows = batch.start + np.minimum(place, batch.n_rows - 1)
    # With NumPy: jax would compile for each number of rows.
    predictions = jax.tree.map(lambda x: np.asarray(x)[rows], model.predictions)
    return predictions, model.targets[rows], place < batch.n_rows
