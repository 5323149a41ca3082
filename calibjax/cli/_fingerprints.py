"""Fingerprints of rows, which say that they were seen before, whatever their file is called."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from calibjax.cli._batches import Batch
from calibjax.cli._columns import Model

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
        return _of_first(hashes, [batch.n_rows])[0]

    def of_first(self, sizes: Sequence[int]) -> list[Fingerprint]:
        """The fingerprints of the first rows, for several numbers of rows."""
        return _of_first(self._hashes, sizes)

    def is_telling(self, batch: Batch, in_order: bool) -> bool:
        """Whether other rows with its fingerprint are a copy; a few may be alike by chance."""
        rows = self._rows[batch.start : batch.start + batch.n_rows]
        kinds = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        n_runs = 1 + np.count_nonzero(kinds[1:] != kinds[:-1])
        return len(np.unique(kinds)) >= _ROWS or (in_order and bool(n_runs >= _RUNS))


def _of_first(hashes: np.ndarray, sizes: Sequence[int]) -> list[Fingerprint]:
    # Sums overflow, as they should.
    places = 2 * np.arange(len(hashes), dtype=np.uint64) + 1
    sums = np.cumsum(hashes * places), np.cumsum(hashes)
    return [Fingerprint(*(f"{x[size - 1]:016x}" for x in sums)) for size in sizes]
