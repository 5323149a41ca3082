"""Fingerprints of rows, which say that they were seen before, whatever their file is called."""

import hashlib
from collections.abc import Iterable, Iterator

import jax
import numpy as np

from calibjax.cli._batches import Batch
from calibjax.cli._columns import Model

# So many different rows do not come again in the same order by chance.
_TELLING = 10
# 64 bits: of 100 000 batches, no two have the same by chance.
_LENGTH = 16


class Fingerprints:
    """Fingerprints of the rows of a file: of the numbers of predictions and targets."""

    def __init__(self, model: Model) -> None:
        n = len(model.targets)
        arrays = [np.asarray(x) for x in (*jax.tree.leaves(model.predictions), model.targets)]
        parts = [np.ascontiguousarray(x.reshape(n, -1)).view(np.uint8) for x in arrays]
        self._rows = np.concatenate(parts, axis=1)

    def of(self, batch: Batch) -> str:
        """The fingerprint of a batch, which depends on the order of its rows."""
        return hashlib.sha256(self._of(batch).tobytes()).hexdigest()[:_LENGTH]

    def of_first(self, sizes: Iterable[int]) -> Iterator[str]:
        """The fingerprints of the first rows, for numbers of rows in ascending order."""
        so_far, start = hashlib.sha256(), 0
        for size in sizes:
            so_far.update(self._rows[start:size].tobytes())
            start = size
            yield so_far.hexdigest()[:_LENGTH]

    def is_telling(self, batch: Batch) -> bool:
        """Whether other rows with its fingerprint are a copy; a few may be alike by chance."""
        return len(np.unique(self._of(batch), axis=0)) >= _TELLING

    def _of(self, batch: Batch) -> np.ndarray:
        return self._rows[batch.start : batch.start + batch.n_rows]
