"""The block diagonal part of H, for consecutive blocks of rows."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._base.sharding import Axis, all_sum, axis_size, index_on, rows_from_here
from calibjax._base.struct import indexed, static, struct
from calibjax._data.data import Rows, clean, in_dtype
from calibjax._numbers.arithmetic import pairs_weight
from calibjax._pairwise.tiles import cut, in_chunks, most_tile_rows
from calibjax.discrepancy import SumOfTerms, h_with_itself
from calibjax.kernels.base import Sample
from calibjax.operators.gram_matrix import in_tiles, poisoned_unless_symmetric

T = TypeVar("T")


@struct
class BlockH:
    """The blocks of B consecutive rows and columns on the diagonal of H.

    Args:
        kernel: the kernel of h.
        samples, weights: the N B samples of the N blocks that begin on this device, and the weights
            of the rows of each block, ``[N, B]``.
        axis: the mesh axes along which the blocks are cut among devices, or None.
    """

    kernel: SumOfTerms
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    @property
    def block_size(self) -> int:
        """The number of rows of a block, B."""
        return self.weights.shape[1]

    def sums(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij of each block, ``[N]``; differentiable."""
        return self._map(
            lambda samples, weights: in_tiles(self.kernel, samples, weights).pair_sum()
        )

    def sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """sum_{i != j} w_i w_j h_ij and sum_{i != j} w_i w_j h_ij^2 of each block, ``[N]`` each.

        Both come from one pass over the blocks.
        """

        def block_sums(samples: Sample, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
            block = in_tiles(self.kernel, samples, weights)
            row_sums, squares = block.row_sums_and_squares()
            return jnp.sum(block.weights * row_sums), squares

        return self._map(block_sums)

    def _map(self, function: Callable[[Sample, jax.Array], T]) -> T:
        """``function(samples, weights)`` of each block, ``[N, …]``."""
        n_blocks, block_size = self.weights.shape
        samples, weights = cut(self.samples, block_size), self.weights
        if n_blocks == 1:
            result = function(*indexed((samples, weights), 0))
            return indexed(result, None)
        # Small blocks go together, as many as fill one tile, but no more than leave little to pad.
        chunks = in_chunks(samples, weights, most_tile_rows() ** 2 // block_size**2)
        results = lax.map(lambda chunk: jax.vmap(function)(*chunk), chunks)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_blocks], results)

    def complete(self) -> jax.Array:
        """1 for each block without masked rows, else 0, ``[N]``; NaN if the data are invalid."""
        return jnp.prod(self.weights, axis=1)

    def estimates(self, sums: jax.Array) -> jax.Array:
        """`sums` over the number of pairs i != j for complete blocks, 0 for others, ``[N]``."""
        return self.complete() * sums / (self.block_size * (self.block_size - 1))

    def pair_sum(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(self.sums()), self.axis)

    def pair_weight(self) -> jax.Array:
        """sum_{i != j} w_i w_j, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(pairs_weight(self.weights)), self.axis)

    def full_weight(self) -> jax.Array:
        """sum_{i, j} w_i w_j, over the pairs within blocks on all devices."""
        return all_sum(jnp.sum(jnp.square(jnp.sum(self.weights, axis=1))), self.axis)

    def trace(self) -> jax.Array:
        """sum_i w_i^2 h_ii, over the rows of all devices."""
        diagonal = jax.vmap(lambda a: h_with_itself(self.kernel, a))(self.samples)
        return all_sum(jnp.sum(jnp.square(self.weights.reshape(-1)) * diagonal), self.axis)


def block_h(kernel: SumOfTerms, data: Rows, block_size: int, axis: Axis) -> BlockH:
    """The blocks of H on checked data; the incomplete last block is dropped."""
    data = poisoned_unless_symmetric(kernel, clean(data, axis))
    data = whole_blocks(data, block_size, axis)
    kernel = in_dtype(kernel, data.weights.dtype)
    return BlockH(kernel, data.samples, data.weights.reshape(-1, block_size), axis)


def whole_blocks(data: Rows, block_size: int, axis: Axis) -> Rows:
    """The rows of the blocks that begin on this device.

    Blocks are cut from the rows of all devices, and a block that begins on this device may end on a
    later one.  Each device has the same number of blocks; a block that does not exist has weight 0.
    """
    rows = Rows(data.predictions, data.targets, weights=data.weights)
    n, n_devices = data.n, axis_size(axis)
    if n_devices == 1 or n % block_size == 0:
        return indexed(rows, slice(n // block_size * block_size))
    n_blocks = -(-n // block_size)
    size = n_blocks * block_size
    first = index_on(axis) * n
    # The first block of this device begins `offset` rows behind its first row.
    offset = -first % block_size
    rows = jax.tree.map(lambda x: rows_from_here(x, size + block_size, axis), rows)
    rows = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, offset, size), rows)
    begins = offset + jnp.arange(n_blocks, dtype=jnp.int32) * block_size
    complete = (begins < n) & (first + begins + block_size <= n * n_devices)
    weights = jnp.where(jnp.repeat(complete, block_size), rows.weights, 0.0)
    return Rows(rows.predictions, rows.targets, weights=weights)
