"""Quadratic forms of the matrix of all pairs, which is never held."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import dot
from calibjax._pairwise._ring import ring
from calibjax._pairwise._tile_sums import tile_values
from calibjax._pairwise._tiles import Tile, cut, pad, tile_sizes
from calibjax._sharding import Axis, all_sum


def quadratic_forms(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    vectors: jax.Array,
    axis: Axis = None,
    tile_rows: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """v^T G v for each row v of `vectors`, and G w, where G is the symmetric matrix of pairs.

    G_ij = tile_ij for i != j, and 0 on the diagonal; each unordered pair of tiles is made once, and
    all vectors meet a tile in one product of matrices.  O(n^2 R) time; a few tiles of memory.  The
    rows, and with them the columns of `vectors`, may be those of one device among many.

    Args:
        weights: w, ``[n]``.
        vectors: ``[R, n]`` of any dtype, such as int8 for counts.

    Returns:
        ``[R]`` of all devices, and ``[n]``.
    """
    n, n_vectors, dtype = weights.shape[0], vectors.shape[0], weights.dtype
    n_tiles, size = tile_sizes(n, tile_rows)
    vectors = jnp.pad(vectors, ((0, 0), (0, n_tiles * size - n)))
    vectors = jnp.moveaxis(vectors.reshape(n_vectors, n_tiles, size), 1, 0)
    tiles = cut(pad((rows, weights), n_tiles * size), (n_tiles, size))
    diagonal = jnp.eye(size, dtype=bool)

    def visit(left, right, same, factor):
        ((left, left_weights), left_vectors), ((right, right_weights), right_vectors) = left, right
        values = factor * jnp.where(
            diagonal & same, 0.0, tile_values(tile, parameters, left, right)
        )
        left_vectors, right_vectors = left_vectors.astype(dtype), right_vectors.astype(dtype)
        # Some 10 digits of base 2 of each value are enough: they are multiplied with small whole
        # numbers, and draws then change by 2e-4 of their standard deviation.
        of_left = jnp.dot(left_vectors, values, precision=lax.Precision.HIGH)
        both = jnp.sum(of_left * right_vectors, axis=1)
        return 2 * both, ([], dot(values, right_weights), dot(left_weights, values))

    products = jnp.zeros((n_tiles, size), dtype)
    zero = jnp.zeros(n_vectors, dtype)
    forms, _, products = ring(visit, (tiles, vectors), zero, [], products, axis)
    return all_sum(forms, axis), products.reshape(-1)[:n]
