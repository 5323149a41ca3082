"""H computed tile by tile, and never stored."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._data import Data, clean, in_dtype
from calibjax._numerics import pairs_weight
from calibjax._pairwise import (
    all_pairs_sum,
    column_sums,
    pad,
    quadratic_forms,
    row_sums_and_squares,
    tile_sizes,
)
from calibjax._sharding import Axis, all_of, all_sum
from calibjax._struct import static, struct
from calibjax.discrepancy import Sample, deviation_tile, h, h_tile
from calibjax.kernels import is_symmetric
from calibjax.operators._dense import DenseH
from calibjax.operators._operator import H


@struct
class TiledH(H):
    """H of a kernel on clean data: each sum is one pass over all tiles of pairs, in O(n) memory.

    As H is symmetric, a pass computes one tile for each unordered pair of chunks of rows.  On many
    devices the chunks go round a ring.
    """

    kernel: Any
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    def pair_sum(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij, differentiable in the kernel and the data."""
        return all_pairs_sum(h_tile, self.kernel, self.samples, self.weights, self.axis)

    def pair_weight(self) -> jax.Array:
        """sum_{i != j} w_i w_j."""
        within = all_sum(pairs_weight(self.weights), self.axis)
        return within + pairs_weight(all_of(jnp.sum(self.weights), self.axis))

    def full_weight(self) -> jax.Array:
        """sum_{i, j} w_i w_j."""
        return jnp.square(self.count())

    def diagonal(self) -> jax.Array:
        return jax.vmap(lambda a: h(self.kernel, a, a))(self.samples)

    def row_sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        rows = self.samples, self.weights
        sums, squares = row_sums_and_squares(h_tile, self.kernel, *rows, self.axis)
        return sums, all_sum(squares, self.axis)

    def quadratic_forms(self, vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = self.samples, self.weights
        return quadratic_forms(h_tile, self.kernel, *rows, vectors, self.axis)

    def core(self) -> jax.Array:
        return self.dense().core()

    def dense(self) -> DenseH:
        """H as a matrix in memory, if all rows are on one device."""
        matrix = h_tile(self.kernel, self.samples, self.samples)
        # A tile may round h_ii otherwise than `diagonal` does.
        matrix = jnp.fill_diagonal(matrix, self.diagonal(), inplace=False)
        return DenseH(matrix, self.weights)

    def deviations(self, locations: Data) -> jax.Array:
        """The deviation of each sample at each location, ``[n, J]``."""
        return deviation_tile(self.kernel, self.samples, locations.samples)

    def deviation_sums(self, locations: Data) -> jax.Array:
        """sum_i w_i deviation_ij, ``[J]``, without an array ``[n, J]``."""
        rows = self.samples, self.weights
        return column_sums(deviation_tile, self.kernel, *rows, locations.samples, self.axis)


def tiled_h(kernel: Any, data: Data, axis: Axis = None) -> TiledH:
    """H of a kernel on checked data, which are cleaned first."""
    return tiled_h_of_clean(kernel, poisoned_unless_symmetric(kernel, clean(data, axis)), axis)


def poisoned_unless_symmetric(kernel: Any, data: Data) -> Data:
    """The same clean data; all weights are NaN where a user's kernel is not symmetric.

    H is computed for one order of each pair only, so that another kernel would give a wrong number.
    """
    symmetric = is_symmetric(kernel, *data.samples)
    return dataclasses.replace(data, weights=data.weights * jnp.where(symmetric, 1.0, jnp.nan))


def tiled_h_of_clean(kernel: Any, data: Data, axis: Axis = None) -> TiledH:
    """H of a kernel on clean data; rows of weight 0 are added to fill whole tiles."""
    samples, weights = pad((data.samples, data.weights), math.prod(tile_sizes(data.n)))
    return TiledH(in_dtype(kernel, weights.dtype), samples, weights, axis)
