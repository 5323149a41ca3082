"""Quadratic forms of the matrix of all pairs, which is never held."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._numerics import compensated_add
from calibjax._pairwise._tiles import TILE_ROWS, Tile, pad, tile_sizes


def quadratic_forms(
    tile: Tile,
    parameters: Any,
    rows: Any,
    weights: jax.Array,
    vectors: jax.Array,
    tile_rows: int = TILE_ROWS,
) -> tuple[jax.Array, jax.Array]:
    """v^T G v for each row v of `vectors`, and G w, where G is the symmetric matrix of pairs.

    G_ij = tile_ij for i != j, and 0 on the diagonal; only its upper triangle of tiles is made, and
    all vectors meet a tile in one product of matrices.  O(n^2 R) time; a few tiles of memory.

    Args:
        weights: w, ``[n]``.
        vectors: ``[R, n]`` of any dtype, such as int8 for counts.

    Returns:
        ``[R]`` and ``[n]``.
    """
    n, n_vectors = weights.shape[0], vectors.shape[0]
    n_tiles, size = tile_sizes(n, tile_rows)
    rows, weights = pad((rows, weights), n_tiles * size)
    vectors = jnp.pad(vectors, ((0, 0), (0, n_tiles * size - n)))
    dtype = weights.dtype
    diagonal = jnp.eye(size, dtype=bool)

    def part(i):
        start = i * size
        cut = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), (rows, weights))
        return *cut, lax.dynamic_slice_in_dim(vectors, start, size, axis=1).astype(dtype)

    def dot(a, b):
        return jnp.dot(a, b, precision=lax.Precision.HIGHEST)

    def row_of_tiles(i, carry):
        left, left_weights, left_vectors = part(i)

        def pair(j, carry):
            forms, products = carry
            right, right_weights, right_vectors = part(j)
            values = tile(parameters, left, right)
            values = jnp.where(diagonal & (i == j), 0.0, values)
            twice = jnp.where(i == j, 1.0, 2.0).astype(dtype)
            both = jnp.sum(dot(left_vectors, values) * right_vectors, axis=1)
            products = products.at[i].add(dot(values, right_weights))
            mirrored = dot(left_weights, values)
            products = products.at[j].add(jnp.where(i == j, 0.0, mirrored))
            return compensated_add(forms, twice * both), products

        return lax.fori_loop(i, n_tiles, pair, carry)

    zeros = jnp.zeros(n_vectors, dtype)
    products = jnp.zeros((n_tiles, size), dtype)
    (high, low), products = lax.fori_loop(0, n_tiles, row_of_tiles, ((zeros, zeros), products))
    return high + low, products.reshape(-1)[:n]
