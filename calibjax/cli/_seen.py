"""Single rows that were counted lately, by which a corrected file or a late one is recognised."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

#: How many rows are remembered, of 4 bytes each: 256 kB.
N_REMEMBERED = 2**16
# Rows tell a batch if nearly all of them differ; others are alike by chance.
_DIFFERENT, _ROWS = 0.9, 10


def remembered(rows: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The last rows, with those that were counted now, as numbers of 32 bits."""
    return np.concatenate([rows, more])[-N_REMEMBERED:]


def parts_of(rows: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """The rows that are remembered of each batch, where batches of these sizes were counted."""
    ends = len(rows) - np.cumsum([0, *reversed(sizes)])
    bounds = zip(ends[1:], ends, strict=False)
    return [rows[max(start, 0) : max(end, 0)] for start, end in bounds][::-1]


def is_telling(rows: np.ndarray) -> bool:
    """Whether nearly all rows differ, so that rows of others are not the same by chance."""
    return len(rows) > 0 and len(np.unique(rows)) >= _DIFFERENT * len(rows)


class Copy(NamedTuple):
    """The number of a batch of a file, of one that was counted, and of the rows they share."""

    batch: int
    counted: int
    n_rows: int


def copies_of(batches: Sequence[np.ndarray], counted: Sequence[np.ndarray]) -> list[Copy]:
    """Batches of which most rows are among those of one that was counted, or the reverse.

    The most similar ones come first.
    """
    shared = _frame(batches).join(_frame(counted), on="row", suffix="_counted")
    pairs = shared.group_by("batch", "batch_counted").len().rows()
    found = [Copy(*pair) for pair in pairs]
    sizes = {x: min(len(batches[x.batch]), len(counted[x.counted])) for x in found}
    most = [x for x in found if x.n_rows >= _ROWS and 2 * x.n_rows > sizes[x]]
    return sorted(most, key=lambda x: (x.batch, -x.n_rows, x.counted))


def _frame(parts: Sequence[np.ndarray]) -> pl.DataFrame:
    """The rows of those batches that they tell, each row once."""
    told = [np.unique(x) if is_telling(x) else x[:0] for x in parts]
    numbers = np.repeat(np.arange(len(told)), [len(x) for x in told])
    rows = np.concatenate([np.zeros(0, np.uint32), *told])
    return pl.DataFrame({"row": rows, "batch": numbers})
