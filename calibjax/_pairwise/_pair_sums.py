"""Sums over all pairs of rows, with their derivatives.

Nothing larger than one tile of pairs and a few copies of the rows of a device is ever held.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from calibjax._pairwise._ring import ring
from calibjax._pairwise._tile_sums import Asked, value_and_gradient, weighted_sum
from calibjax._pairwise._tiles import Tile, cut, most_tile_rows, pad, tile_sizes
from calibjax._sharding import Axis, all_sum
from calibjax._struct import split


def all_pairs_sum(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    axis: Axis = None,
    tile_rows: int | None = None,
) -> jax.Array:
    """sum_{i != j} w_i w_j tile_ij over all rows, those on other devices too; a scalar.

    Differentiable in all floating leaves of `parameters`, `rows` and `weights`, forwards, backwards
    and again.  O(n^2) time and O(n + tile_rows^2) memory, for the derivative too; on D devices both
    are D times less on each.
    """
    n_tiles, size = tile_sizes(weights.shape[0], tile_rows)
    tiles = cut(pad((rows, weights), n_tiles * size), (n_tiles, size))
    return 2 * _ring_sum(tile, axis, parameters, tiles)


def block_sums(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    block_size: int,
    tile_rows: int | None = None,
) -> jax.Array:
    """The same within each block of consecutive rows of one device, ``[n // block_size]``.

    Rows after the last full block do not count.  O(n block_size) time.
    """
    block_sum = functools.partial(all_pairs_sum, tile, parameters, tile_rows=tile_rows)
    return map_blocks(block_sum, rows, weights, block_size, tile_rows)


def map_blocks(
    function: Callable[[Any, jax.Array], Any],
    rows: Any,
    weights: jax.Array,
    block_size: int,
    tile_rows: int | None = None,
) -> Any:
    """``function(rows, weights)`` of each block of consecutive rows, ``[n // block_size, …]``."""
    n_blocks = weights.shape[0] // block_size
    rows, weights = jax.tree.map(lambda x: x[: n_blocks * block_size], (rows, weights))
    if n_blocks == 1:
        return jax.tree.map(lambda x: x[None], function(rows, weights))
    # Small blocks go together, as many as fill one tile, but no more than leave little to pad.
    pairs_of_tile = (tile_rows or most_tile_rows()) ** 2
    together = max(1, min(n_blocks, pairs_of_tile // block_size**2))
    n_chunks = -(-n_blocks // together)
    together = -(-n_blocks // n_chunks)
    shape = (n_chunks, together, block_size)
    chunks = cut(pad((rows, weights), n_chunks * together * block_size), shape)
    results = lax.map(lambda chunk: jax.vmap(function)(*chunk), chunks)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_blocks], results)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _ring_sum(tile, axis, parameters, tiles):
    def visit(left, right, same, factor):
        return factor * weighted_sum(tile, parameters, left, right, same), ([], [], [])

    zero = jnp.zeros((), tiles[1].dtype)
    return all_sum(ring(visit, tiles, zero, [], [], axis)[0], axis)


@functools.partial(_ring_sum.defjvp, symbolic_zeros=True)
def _ring_sum_jvp(tile, axis, primals, tangents):
    # The sum is a scalar: its whole derivative is one gradient, made along with the value in a
    # single pass.  Going back over all tiles would evaluate each of them once more.
    asked = tuple(tuple(map(_is_asked, jax.tree.leaves(tree))) for tree in tangents)
    total, *gradient = _ring_gradient(tile, axis, asked, *primals)
    tangents = [split(*pair)[0] for pair in zip(tangents, asked, strict=True)]
    products = jax.tree.map(lambda g, t: jnp.sum(g * t), gradient, tangents)
    tangent = sum(jax.tree.leaves(products), jnp.zeros_like(total))
    return all_sum((total, tangent), axis)


def _is_asked(tangent: Any) -> bool:
    return not isinstance(tangent, SymbolicZero) and tangent.dtype != jax.dtypes.float0


def _value_and_gradient(tile, axis, asked, parameters, tiles):
    """The sum over the pairs of this device, its gradient in the parameters, and the gradient of
    the sum over all devices in the tiles of this one."""
    asked_parameters, rest_parameters, of_parameters = split(parameters, asked[0])
    asked_tiles, rest_tiles, of_tiles = split(tiles, asked[1])

    def visit(left, right, same, factor):
        arguments = Asked(asked_parameters, rest_parameters), Asked(*left), Asked(*right)
        found = value_and_gradient(tile, (of_parameters, of_tiles), *arguments, same)
        return jax.tree.map(lambda x: factor * x, found)

    zero = jnp.zeros((), tiles[1].dtype)
    zeros = jax.tree.map(jnp.zeros_like, (asked_parameters, asked_tiles))
    return ring(visit, (asked_tiles, rest_tiles), zero, *zeros, axis)


# A rule that changes no derivative: it only hides the loops from jax's partial evaluation, which
# would move what does not change in them out of them, one small array at a time.
_ring_gradient = jax.custom_jvp(_value_and_gradient, nondiff_argnums=(0, 1, 2))


@_ring_gradient.defjvp
def _ring_gradient_jvp(tile, axis, asked, primals, tangents):
    return jax.jvp(functools.partial(_value_and_gradient, tile, axis, asked), primals, tangents)
