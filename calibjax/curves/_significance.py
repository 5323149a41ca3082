"""Which cells of a map speak against the model, and which of them most clearly."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._numbers import absolute

# In units of the precision: by how much equal scores may differ between two programs.
_ROUNDING = 256


def is_significant(score: jax.Array, critical: jax.Array) -> jax.Array:
    """Whether scores are farther from 0 than the critical one; equal scores are not."""
    return absolute(score) > critical * (1 + _ROUNDING * jnp.finfo(score.dtype).eps)


def worst_cell(score: jax.Array, significant: jax.Array) -> tuple[int, ...] | None:
    """The index of the significant cell whose score is farthest from 0; None if none is.

    The arrays must be concrete.
    """
    distances = np.where(np.asarray(significant), np.abs(np.asarray(score)), -1.0)
    index = np.unravel_index(np.argmax(distances), distances.shape)
    return tuple(map(int, index)) if distances[index] >= 0 else None
