"""Tiles of functions of vectors, row by row."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

#: The arrays of a batch, ``[S, …]`` each.
Arrays = Sequence[jax.Array]


def row_by_row(function: Callable[..., jax.Array], left: Arrays, right: Arrays) -> jax.Array:
    """A function of pairs, coordinates first, for all pairs of two batches, ``[S, T]``.

    ``function(*ours, *theirs)`` takes arrays ``[d, …, pairs]``.  On a CPU it takes one row of the
    tile at a time: what it makes of the d numbers of each pair then stays in the nearest cache, and
    the loops run along the pairs.
    """
    right = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), right)

    @jax.checkpoint
    def tile_row(one: Arrays, right: Arrays) -> jax.Array:
        return function(*(x[..., None] for x in one), *right)

    return lax.platform_dependent(
        *(left, right),
        cpu=lambda left, right: lax.map(lambda one: tile_row(one, right), left),
        default=jax.vmap(tile_row, in_axes=(0, None)),
    )
