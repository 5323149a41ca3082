"""Which cell of a map speaks most clearly against the model."""

import jax
import numpy as np


def worst_cell(score: jax.Array, significant: jax.Array) -> tuple[int, ...] | None:
    """The index of the significant cell whose score is farthest from 0; None if none is.

    The arrays must be concrete.
    """
    distances = np.where(np.asarray(significant), np.abs(np.asarray(score)), -1.0)
    index = np.unravel_index(np.argmax(distances), distances.shape)
    return tuple(map(int, index)) if distances[index] >= 0 else None
