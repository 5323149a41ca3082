"""n independent uniform numbers in equal cells of [0, 1]: their counts, and the law of these.

A model's PIT is uniform if it is calibrated, whatever its family.  So the bands of curves of the
PIT depend on n alone.  A count is compared with its binomial law by the distance T of
`_deviation.py`, a likelihood ratio, whose level is nearly the same for all counts that happen.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._struct import struct
from calibjax.curves._deviation import Bins
from calibjax.estimators import UniformBinning


@struct
class CellCounts:
    """How many rows are in each of equal cells.

    Args:
        counts: the number of kept rows with u in (j / n_cells, (j + 1) / n_cells], ``[n_cells]``;
            a row whose u is NaN is in no cell.
        valid: 1, or NaN if a kept row is NaN or no row is kept, in the dtype of u.
    """

    counts: jax.Array
    valid: jax.Array


@functools.partial(jax.jit, static_argnames="n_cells")
def cell_counts(u: jax.Array, where: jax.Array | None, n_cells: int) -> CellCounts:
    """The counts of u ``[n]``, by themselves: what follows is compiled once for all n."""
    kept = jnp.ones(u.shape, bool) if where is None else where
    unknown = jnp.isnan(u)
    cells = jnp.where(kept & ~unknown, UniformBinning(n_cells).intervals(u), n_cells)
    counts = jnp.zeros(n_cells, jnp.int32).at[cells].add(1, mode="drop")
    valid = jnp.any(kept) & ~jnp.any(unknown & kept)
    return CellCounts(counts, jnp.where(valid, 1.0, jnp.nan).astype(u.dtype))


def redrawn_cell_counts(
    key: jax.Array, n: jax.Array, n_cells: int, n_resamples: int, dtype: jnp.dtype
) -> jax.Array:
    """Counts of n uniform numbers, ``[n_resamples, n_cells]``; draw r depends only on (key, r).

    Each cell takes a binomial part of the numbers that the cells before it have left, so that the
    time does not depend on n.
    """

    def draw(number: jax.Array) -> jax.Array:
        def next_cell(left: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array]:
            share = 1 / (n_cells - cell).astype(dtype)
            cell_key = jax.random.fold_in(draw_key, cell)
            count = jax.random.binomial(cell_key, left.astype(dtype), share, dtype=dtype)
            count = count.astype(jnp.int32)
            return left - count, count

        draw_key = jax.random.fold_in(key, number)
        left, counts = lax.scan(next_cell, n, jnp.arange(n_cells - 1, dtype=jnp.int32))
        return jnp.append(counts, left)

    return jax.vmap(draw)(jnp.arange(n_resamples, dtype=jnp.int32))


def cumulative(counts: jax.Array) -> jax.Array:
    """How many numbers the first k cells hold, for k = 0, …, along the last axis."""
    sums = jnp.cumsum(counts, axis=-1, dtype=jnp.int32)
    return jnp.pad(sums, [(0, 0)] * (counts.ndim - 1) + [(1, 0)])


def law_of_cells(n: jax.Array, cells: jax.Array, n_cells: int, dtype: jnp.dtype) -> Bins:
    """The binomial law of how many of n numbers are in each set of `cells` of all `n_cells`."""
    inside, outside = (x.astype(dtype) / n_cells for x in (cells, n_cells - cells))
    size = jnp.full(cells.shape, n, jnp.int32)
    return Bins(inside, outside, size.astype(dtype) * inside * outside, size)
