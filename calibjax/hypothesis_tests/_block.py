"""The asymptotic test with the mean of block estimates."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

from calibjax._check import check_choice, check_integer
from calibjax._data import Data
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._sharding import Axis, all_sum, on_devices, on_one_device
from calibjax._struct import is_traced
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import KernelLike
from calibjax.operators import BlockH, block_h


def asymptotic_block_skce_test(
    kernel: KernelLike,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    block_size: int = 2,
    variance: str = "blocks",
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the mean of the unbiased SKCE of N blocks of samples larger than 0?

    .. math::
        z = \\frac{\\bar\\eta}{s / \\sqrt N}, \\qquad p = 1 - \\Phi(z)

    where eta_b is the estimate of block b and blocks are B consecutive rows; the incomplete last
    block is dropped, and nothing is shuffled.  s is the standard deviation of the estimates
    (ddof = 1).  With variance="null" it is their standard deviation under H0,
    s^2 = 2 E h^2 / (B (B-1)), where E h^2 is the mean over all pairs within blocks.

    The p-value is asymptotically exact as N grows: use at least 30 blocks.  Larger blocks have more
    power; B may grow with n, and B = sqrt(n) is a fair choice for large n.  O(n B) time, O(n)
    memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 4 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        block_size: B, from 2 to n / 2.
        variance: "blocks" or "null".
        where: boolean mask ``[n]``; masked rows may hold anything.  A block with a masked row does
            not count.

    Returns:
        CalibrationTestResult.  Its standard_error is always the s / sqrt(N) of variance="blocks",
        so that its confidence interval is asymptotically valid whether H0 is true or not.  Inside
        jit a bad value, or fewer than two complete blocks, makes all numbers NaN.

    Raises:
        TypeError, ValueError: as in `skce`; fewer than two complete blocks.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(1000, 0.5))
        >>> targets = jax.random.bernoulli(jax.random.key(0), 0.8, (1000,))
        >>> kernel = cj.default_kernel(predictions)
        >>> result = cj.asymptotic_block_skce_test(kernel, predictions, targets)
        >>> float(result.statistic)
        8.62

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remarks B.1 and B.3.
    """
    kernel, data = check_inputs(kernel, predictions, targets, where)
    if data.n < 4:
        raise ValueError(f"predictions must hold two blocks of at least 2 rows, got {data.n} rows.")
    block_size = check_integer("block_size", block_size, 2, data.n // 2, "n / 2 = ")
    check_choice("variance", variance, _SUMMARIES)
    check_complete_blocks(data, block_size, at_least=2)
    return _asymptotic_block_skce_test(kernel, data, block_size, variance)


def check_complete_blocks(data: Data, block_size: int, at_least: int) -> None:
    """ValueError if fewer than `at_least` blocks have no masked row; a traced mask passes."""
    if data.where is None or is_traced(data.where):
        return
    with jax.ensure_compile_time_eval():
        where = jnp.asarray(on_one_device(data.where))
        n_blocks = data.n // block_size
        blocks = where[: n_blocks * block_size].reshape(n_blocks, block_size)
        complete = int(jnp.sum(jnp.all(blocks, axis=1)))
    if complete < at_least:
        raise ValueError(
            f"where must leave at least {at_least} complete blocks of {block_size} rows, got "
            f"{complete}."
        )


@on_devices
def _asymptotic_block_skce_test(
    axis: Axis, kernel: Any, data: Data, block_size: int, variance: str
) -> CalibrationTestResult:
    blocks, null_error = _SUMMARIES[variance](block_h(kernel, data, block_size, axis))
    method = f"asymptotic_block_skce_test, blocks of {block_size}, variance of {variance}"
    return z_test(blocks, method, null_error)


class BlockSummary(NamedTuple):
    """Three numbers that summarise the complete blocks of all devices.

    Args:
        n_blocks: the number of complete blocks.
        mean: the mean of their estimates.
        squares: the sum of the squared deviations of their estimates from the mean.
    """

    n_blocks: jax.Array
    mean: jax.Array
    squares: jax.Array


def summarise(blocks: BlockH) -> BlockSummary:
    """The summary of the complete blocks."""
    return _summarise_estimates(blocks, blocks.estimates(blocks.sums()))


def _summarise_estimates(blocks: BlockH, estimates: jax.Array) -> BlockSummary:
    """The summary of the complete blocks, given the estimates of all blocks ``[N]``."""
    complete = blocks.complete()
    n_blocks, total = all_sum((jnp.sum(complete), jnp.sum(estimates)), blocks.axis)
    mean = total / jnp.maximum(n_blocks, 1)
    squares = jnp.sum(complete * jnp.square(estimates - mean))
    return BlockSummary(n_blocks, mean, all_sum(squares, blocks.axis))


def _summary_and_no_null_error(blocks: BlockH) -> tuple[BlockSummary, None]:
    """The summary and None: the test takes the standard error from the summary."""
    return summarise(blocks), None


def _summary_and_null_error(blocks: BlockH) -> tuple[BlockSummary, jax.Array]:
    """The summary, and the standard error of the mean under H0 from the mean of h^2."""
    sums, squares = blocks.sums_and_squares()
    summary = _summarise_estimates(blocks, blocks.estimates(sums))
    n_blocks, size = summary.n_blocks, blocks.block_size
    mean_square = all_sum(jnp.sum(blocks.estimates(squares)), blocks.axis) / n_blocks
    return summary, jnp.sqrt(2 * mean_square / (size * (size - 1) * n_blocks))


_SUMMARIES: dict[str, Callable[[BlockH], tuple[BlockSummary, jax.Array | None]]] = {
    "blocks": _summary_and_no_null_error,
    "null": _summary_and_null_error,
}


def z_test(
    summary: BlockSummary, method: str, null_error: jax.Array | None = None
) -> CalibrationTestResult:
    """The z-test of a summary; all numbers are NaN if it has fewer than two blocks.

    `null_error` is the standard error of the mean under H0; None takes the standard error that the
    estimates of the blocks show.
    """
    n_blocks, mean, squares = summary
    enough, n_blocks = n_blocks >= 2, jnp.asarray(n_blocks, mean.dtype)
    n_blocks, estimate = (jnp.where(enough, x, jnp.nan) for x in (n_blocks, mean))
    variance = squares / (n_blocks - 1)
    # The estimates of all blocks agree up to rounding.
    agree = variance <= jnp.square(10 * jnp.finfo(mean.dtype).eps * mean)
    standard_error = jnp.sqrt(jnp.where(agree, 0.0, variance) / n_blocks)
    if null_error is None:
        null_error = standard_error
    # Without a standard error the sign of the estimate decides: the p-value is 0, 1/2 or 1.
    certain = jnp.where(estimate == 0, 0.0, jnp.copysign(jnp.inf, estimate))
    statistic = jnp.where(
        null_error == 0, certain, estimate / jnp.where(null_error == 0, 1.0, null_error)
    )
    statistic = jnp.where(enough, statistic, jnp.nan)
    return CalibrationTestResult(
        statistic=statistic,
        pvalue=ndtr(-statistic),
        estimate=estimate,
        standard_error=standard_error,
        method=method,
    )
