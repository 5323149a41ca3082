"""Rows of one event whose logits are nearly equal, as one row of their weights.

A map that is smooth in the logit is fitted as well to a few thousand cells as to a million rows.
Each cell has the mean logit of its rows of one label, so that a loss that is linear in the logits
is exact, and the error of any other one is a part d^2 / 100 of its curvature, with d = 0.01 the
width of a cell: some 1e-7 of a log loss.
"""

from typing import NamedTuple

import numpy as np

#: So few rows are fitted as they are.
MOST_ROWS = 4096
_WIDTH = 0.01
# Logits of all other probabilities than 0 and 1 are below.
_FARTHEST = 1000.0


class Cells(NamedTuple):
    """Weighted rows of an event, ``[C]``.

    `counts` says for how many rows of equal weights each one stands, `part` is that of all of its
    rows, and `number` the cell of each row that was given, ``[n]``.
    """

    logits: np.ndarray
    events: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    part: np.ndarray
    number: np.ndarray


def cells_of(
    logits: np.ndarray,
    events: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    part: np.ndarray | None = None,
) -> Cells:
    """Cells of many rows, and else each row by itself; rows of different parts share no cell.

    Args:
        logits: of the event, ``[n]``, infinite where its probability is 0 or 1.
        events: 1 where it happened, and else 0.
        weights, counts: positive numbers, as those of `Cells`.
        part: a number from 0 of each row, or None.
    """
    n = len(logits)
    part = np.zeros(n, int) if part is None else part
    if n <= MOST_ROWS:
        return Cells(logits, events, weights, counts, part, np.arange(n))
    cell = np.floor(np.clip(logits, -_FARTHEST, _FARTHEST) / _WIDTH).astype(int)
    key = (cell * 2 + events) * (part.max() + 1) + part
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    total, squares = np.bincount(number, weights), np.bincount(number, weights**2 / counts)
    mean = np.bincount(number, weights * logits) / total
    return Cells(mean, events[first], total, total**2 / squares, part[first], number)
