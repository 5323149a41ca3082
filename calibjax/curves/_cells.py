"""How many rows are in each cell, and which cells of a map are the worst."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax.estimators import UniformBinning


def cell_counts(u: jax.Array, where: jax.Array | None, n_cells: int) -> tuple[jax.Array, jax.Array]:
    """How many kept rows have u in (j / n_cells, (j + 1) / n_cells], ``[n_cells]``.

    A row whose u is NaN is in no cell.  Beside the counts stands 1, or NaN if a kept row is NaN or
    no row is kept, in the dtype of u.
    """
    kept = jnp.ones(u.shape, bool) if where is None else where
    unknown = jnp.isnan(u)
    cells = jnp.where(kept & ~unknown, UniformBinning(n_cells).intervals(u), n_cells)
    counts = jnp.zeros(n_cells, jnp.int32).at[cells].add(1, mode="drop")
    valid = jnp.any(kept) & ~jnp.any(unknown & kept)
    return counts, jnp.where(valid, 1.0, jnp.nan).astype(u.dtype)


def cumulative(counts: jax.Array) -> jax.Array:
    """How many numbers the first k cells hold, for k = 0, …, along the last axis."""
    sums = jnp.cumsum(counts, axis=-1, dtype=jnp.int32)
    return jnp.pad(sums, [(0, 0)] * (counts.ndim - 1) + [(1, 0)])


def worst_cell(size: ArrayLike, significant: ArrayLike) -> tuple[int, ...] | None:
    """The index of the significant cell whose size is farthest from 0; None if none is.

    The size is a score, for the clearest error, or a value, for the largest one.  The arrays must
    be concrete.
    """
    distances = np.where(np.asarray(significant), np.abs(np.asarray(size)), -1.0)
    index = np.unravel_index(np.argmax(distances), distances.shape)
    return tuple(map(int, index)) if distances[index] >= 0 else None
