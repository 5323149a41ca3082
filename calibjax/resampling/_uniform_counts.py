"""The counts of n independent uniform numbers in equal cells of [0, 1], and their law.

A model's PIT is uniform if it is calibrated, whatever its family.  So the bands of curves of the
PIT depend on n alone.  A count is compared with its binomial law by the distance T of `_bands.py`,
a likelihood ratio, whose level is nearly the same for all counts that happen.
"""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax.resampling._bands import Bins


def redrawn_uniform_counts(
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


def law_of_cells(n: jax.Array, cells: jax.Array, n_cells: int, dtype: jnp.dtype) -> Bins:
    """The binomial law of how many of n numbers are in each set of `cells` of all `n_cells`."""
    inside, outside = (x.astype(dtype) / n_cells for x in (cells, n_cells - cells))
    size = jnp.full(cells.shape, n, jnp.int32)
    return Bins(inside, outside, size.astype(dtype) * inside * outside, size)
