"""How many PIT values are in each cell of the unit line, beside the counts of uniform numbers."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from calibjax.estimators import UniformBinning
from calibjax.resampling import redrawn_uniform_counts


class UniformCounts(NamedTuple):
    """Counts of n numbers in equal cells, and of n uniform numbers in R data sets.

    Args:
        observed: ``[c]``.
        redrawn: ``[R, c]``.
        n: the number of rows.
        valid: 1, or NaN if a kept row is NaN or no row is kept, in the dtype of the numbers.
    """

    observed: jax.Array
    redrawn: jax.Array
    n: jax.Array
    valid: jax.Array

    def each(self, function: Callable[[jax.Array], jax.Array]) -> "UniformCounts":
        """A function of the counts along the last axis."""
        return self._replace(observed=function(self.observed), redrawn=function(self.redrawn))


def uniform_counts(
    key: jax.Array, u: jax.Array, where: jax.Array | None, n_cells: int, n_resamples: int
) -> UniformCounts:
    """How many kept rows have u in (j / n_cells, (j + 1) / n_cells]; a NaN is in no cell."""
    kept = jnp.ones(u.shape, bool) if where is None else where
    unknown = jnp.isnan(u)
    cells = jnp.where(kept & ~unknown, UniformBinning(n_cells).intervals(u), n_cells)
    counts = jnp.zeros(n_cells, jnp.int32).at[cells].add(1, mode="drop")
    n = jnp.sum(counts, dtype=jnp.int32)
    is_known = jnp.any(kept) & ~jnp.any(unknown & kept)
    valid = jnp.where(is_known, 1.0, jnp.nan).astype(u.dtype)
    redrawn = redrawn_uniform_counts(key, n, n_cells, n_resamples, u.dtype)
    return UniformCounts(counts, redrawn, n, valid)


def cumulative(counts: jax.Array) -> jax.Array:
    """How many numbers the first k cells hold, for k = 0, …, along the last axis."""
    sums = jnp.cumsum(counts, axis=-1, dtype=jnp.int32)
    return jnp.pad(sums, [(0, 0)] * (counts.ndim - 1) + [(1, 0)])
