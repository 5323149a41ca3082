"""H within consecutive blocks of rows: a block diagonal matrix."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._data import Data, clean, in_dtype
from calibjax._numerics import pairs_weight
from calibjax._pairwise import block_sums, block_sums_and_squares
from calibjax._sharding import Axis, all_sum, axis_size, index_on, rows_from_here
from calibjax._struct import static, struct
from calibjax.discrepancy import Sample, h, h_tile
from calibjax.operators._tiled import poisoned_unless_symmetric


@struct
class BlockH:
    """The blocks of `block_size` rows on the diagonal of H.

    Args:
        kernel: as of `TiledH`.
        samples: the samples of the N blocks that begin on this device.
        weights: the weights of their rows, ``[N, B]``.
        axis: the mesh axes along which further blocks lie on other devices, or None.
    """

    kernel: Any
    samples: Sample
    weights: jax.Array
    axis: Axis = static(default=None)

    @property
    def block_size(self) -> int:
        """B."""
        return self.weights.shape[1]

    def sums(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij within each block, ``[N]``; differentiable."""
        rows = self.samples, self.weights.reshape(-1)
        return block_sums(h_tile, self.kernel, *rows, self.block_size)

    def sums_and_squares(self) -> tuple[jax.Array, jax.Array]:
        """The same, and sum_{i != j} w_i w_j h_ij^2, in one pass."""
        rows = self.samples, self.weights.reshape(-1)
        return block_sums_and_squares(h_tile, self.kernel, *rows, self.block_size)

    def complete(self) -> jax.Array:
        """1 for each block all rows of which count, else 0, ``[N]``; NaN where data are bad."""
        return jnp.prod(self.weights, axis=1)

    def estimates(self, sums: jax.Array) -> jax.Array:
        """Means over the pairs of each complete block, 0 for other blocks, ``[N]``."""
        return self.complete() * sums / (self.block_size * (self.block_size - 1))

    def pair_sum(self) -> jax.Array:
        """sum_{i != j} w_i w_j h_ij over all blocks."""
        return all_sum(jnp.sum(self.sums()), self.axis)

    def pair_weight(self) -> jax.Array:
        """sum_{i != j} w_i w_j over all blocks."""
        return all_sum(jnp.sum(pairs_weight(self.weights)), self.axis)

    def full_weight(self) -> jax.Array:
        """sum_{i, j} w_i w_j over all blocks."""
        return all_sum(jnp.sum(jnp.square(jnp.sum(self.weights, axis=1))), self.axis)

    def trace(self) -> jax.Array:
        """sum_i w_i^2 h_ii."""
        diagonal = jax.vmap(lambda a: h(self.kernel, a, a))(self.samples)
        return all_sum(jnp.sum(jnp.square(self.weights.reshape(-1)) * diagonal), self.axis)


def block_h(kernel: Any, data: Data, block_size: int, axis: Axis = None) -> BlockH:
    """The blocks of H on data that `check_inputs` has seen; the incomplete last one is dropped."""
    data = poisoned_unless_symmetric(kernel, clean(data, axis))
    data = whole_blocks(data, block_size, axis)
    kernel = in_dtype(kernel, data.weights.dtype)
    return BlockH(kernel, data.samples, data.weights.reshape(-1, block_size), axis)


def whole_blocks(data: Data, block_size: int, axis: Axis) -> Data:
    """The rows of the blocks that begin on this device.

    Blocks are cut from the rows of all devices, and a block that begins here may end on the next
    one.  The number of blocks is the same on each device: what is missing are rows of weight 0.
    """
    rows = Data(data.predictions, data.targets, weights=data.weights)
    n, n_devices = data.n, axis_size(axis)
    if n_devices == 1 or n % block_size == 0:
        return jax.tree.map(lambda x: x[: n // block_size * block_size], rows)
    n_blocks = -(-n // block_size)
    size = n_blocks * block_size
    first = index_on(axis) * n
    # How far behind the first row of this device its first block begins.
    offset = -first % block_size
    rows = jax.tree.map(lambda x: rows_from_here(x, size + block_size, axis), rows)
    rows = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, offset, size), rows)
    begins = offset + jnp.arange(n_blocks, dtype=jnp.int32) * block_size
    complete = (begins < n) & (first + begins + block_size <= n * n_devices)
    weights = jnp.where(jnp.repeat(complete, block_size), rows.weights, 0.0)
    return Data(rows.predictions, rows.targets, weights=weights)
