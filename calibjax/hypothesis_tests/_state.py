"""The block test over a stream of batches."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_integer
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._rows import Data, padded
from calibjax._sharding import Axis, all_sum, optimised_on_devices
from calibjax._struct import is_traced, static, struct
from calibjax.discrepancy import SumOfTerms, check_inputs
from calibjax.hypothesis_tests._nulls import BlockSummary, summarise, z_test
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import KernelLike
from calibjax.operators import block_h


@struct
class SKCEState:
    """The block estimate of the SKCE and its test, over a stream of batches.

    The state is a pytree of three numbers, and can be a carry of `jax.lax.scan` or a part of your
    training state.  Start with `empty`, `update` with each batch, `merge` the states of other
    workers, and `compute` the test at the end.

    The test is valid once, after a number of batches that you chose beforehand.  If you look again
    and again, and stop at a small p-value, it rings falsely: among 100 calibrated streams of 60
    batches of 500 rows, p < 0.05 came up at some batch in 25.  `CalibrationMonitor` is valid at
    every look.

    Blocks are formed within each batch, and the incomplete last block of a batch is dropped: choose
    batches of a multiple of `block_size` rows.  Then the result equals, up to rounding, the result
    of `asymptotic_block_skce_test` on all rows at once.

    Args:
        n_blocks: the number of complete blocks so far.
        mean: the mean of their unbiased estimates.
        squares: the sum of the squared deviations of their estimates from the mean.
        block_size: the number of rows of a block.

    See also:
        `asymptotic_block_skce_test` for rows in memory.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
        >>> state = cj.SKCEState.empty(block_size=10)
        >>> for key in jax.random.split(jax.random.key(0), 20):
        ...     predictions = cj.Bernoulli(jax.random.uniform(key, (50,)))
        ...     targets = predictions.sample(jax.random.fold_in(key, 1))
        ...     state = state.update(kernel, predictions, targets)
        >>> int(state.n_blocks), bool(state.compute().pvalue > 0.05)
        (100, True)

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remark B.1; Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing
    sample variances, 1979.
    """

    n_blocks: jax.Array
    mean: jax.Array
    squares: jax.Array
    block_size: int = static(2)

    @classmethod
    def empty(cls, block_size: int = 2) -> "SKCEState":
        """The state before the first batch, in JAX's default floating dtype.

        Args:
            block_size: the number of rows of a block, at least 2.

        Raises:
            TypeError, ValueError: block_size is not an integer of at least 2.
        """
        block_size = check_integer("block_size", block_size, 2)
        zero = jnp.zeros(())
        return cls(jnp.zeros((), jnp.int32), zero, zero, block_size)

    def update(
        self,
        kernel: KernelLike,
        predictions: Distribution,
        targets: Targets,
        *,
        where: ArrayLike | None = None,
    ) -> "SKCEState":
        """The state after one more batch of n rows.

        A batch with fewer rows than a block changes nothing, and neither does a block with a masked
        row.  Inside jit a bad value makes the state NaN.  O(n block_size) time, O(n) memory.

        Args:
            kernel, predictions, targets, where: as in `asymptotic_block_skce_test`.

        Raises:
            TypeError, ValueError: as in `skce`.
        """
        terms, data = check_inputs(kernel, predictions, targets, where=where, intervals=True)
        if data.n < self.block_size:
            return self
        return _state_after_batch((self, terms), padded(data))

    def merge(self, other: "SKCEState") -> "SKCEState":
        """The state of the blocks of both states.  O(1).

        Raises:
            ValueError: the block sizes differ.
        """
        if self.block_size != other.block_size:
            raise ValueError(
                f"other must have blocks of {self.block_size} rows, got {other.block_size}."
            )
        n_blocks = self.n_blocks + other.n_blocks
        ours, theirs = (jnp.asarray(s.n_blocks, jnp.result_type(s.mean)) for s in (self, other))
        share = theirs / jnp.maximum(ours + theirs, 1)
        difference = other.mean - self.mean
        squares = self.squares + other.squares + jnp.square(difference) * ours * share
        return SKCEState(n_blocks, self.mean + share * difference, squares, self.block_size)

    def compute(self) -> CalibrationTestResult:
        """The result of `asymptotic_block_skce_test` for all blocks so far.  O(1).

        Raises:
            ValueError: there are fewer than two blocks.  Inside jit all numbers are NaN instead.
        """
        if not is_traced(self.n_blocks) and self.n_blocks < 2:
            raise ValueError(
                f"SKCEState must have seen two complete blocks of {self.block_size} rows, got "
                f"{self.n_blocks}."
            )
        method = f"SKCEState, blocks of {self.block_size}"
        return z_test(BlockSummary(self.n_blocks, jnp.asarray(self.mean), self.squares), method)


@optimised_on_devices
def _state_after_batch(axis: Axis, shared: tuple[SKCEState, SumOfTerms], data: Data) -> SKCEState:
    state, kernel = shared
    blocks = block_h(kernel, data, state.block_size, axis)
    _, mean, squares = summarise(blocks)
    dtype = state.mean.dtype
    # The blocks are counted as integers, because float32 could not hold the number.  If a row is
    # invalid, the number is 0 and the mean is NaN.
    n_blocks = all_sum(jnp.sum(blocks.complete() > 0, dtype=state.n_blocks.dtype), axis)
    mean, squares = mean.astype(dtype), squares.astype(dtype)
    return state.merge(SKCEState(n_blocks, mean, squares, state.block_size))
