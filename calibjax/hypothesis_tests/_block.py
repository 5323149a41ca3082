"""The test with blocks of samples."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jax.typing import ArrayLike

from calibjax._check import check_choice, check_integer
from calibjax._pairwise import block_sums
from calibjax._sharding import Axis, all_sum, on_devices, on_one_device
from calibjax._struct import as_pytree, is_traced
from calibjax.discrepancy import h_tile, squared_h_tile
from calibjax.estimators import Inputs, Rows, check_inputs, clean, whole_blocks
from calibjax.hypothesis_tests._result import CalibrationTestResult


def asymptotic_block_skce_test(
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    *,
    block_size: int = 2,
    variance: str = "blocks",
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the mean of the unbiased SKCE of N blocks of samples larger than 0?

    .. math::
        z = \\frac{\\bar\\eta}{s / \\sqrt N}, \\qquad p = 1 - \\Phi(z)

    with the estimates eta_b of consecutive blocks of B rows; the incomplete last block is dropped,
    and nothing is shuffled.  s is their standard deviation (ddof = 1), or with variance="null" the
    one that they have under H0, s^2 = 2 E h^2 / (B (B-1)), with E h^2 the mean over all pairs
    within blocks.

    Asymptotically exact as N grows: use at least 30 blocks.  B may grow with n; larger blocks have
    more power, and B = sqrt(n) is a fair choice for large n.  O(n B) time, O(n) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        block_size: B, from 2 to n / 2.
        variance: "blocks" or "null".
        where: boolean mask ``[n]``; masked rows may hold anything, and their blocks do not count.

    Returns:
        CalibrationTestResult.  Its standard_error is s / sqrt(N) of variance="blocks", whether H0
        is true or not: its confidence interval is asymptotically valid.  Inside jit a bad value, or
        fewer than two complete blocks, make all numbers NaN.

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
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    n = check_inputs(inputs)
    if n < 4:
        raise ValueError(f"predictions must hold two blocks of at least 2 rows, got {n} rows.")
    block_size = check_integer("block_size", block_size, 2, n // 2, "n / 2 = ")
    check_choice("variance", variance, ("blocks", "null"))
    check_complete_blocks(where, block_size, at_least=2)
    return _asymptotic_block_skce_test(inputs.kernel, inputs[1:], block_size, variance)


def check_complete_blocks(where: Any, block_size: int, at_least: int) -> None:
    """Counts the blocks without a masked row, where they can be counted."""
    if where is None or is_traced(where):
        return
    with jax.ensure_compile_time_eval():
        where = jnp.asarray(on_one_device(where))
        complete = int(jnp.sum(jnp.all(_as_blocks(where, block_size), axis=1)))
    if complete < at_least:
        raise ValueError(
            f"where must leave at least {at_least} complete blocks of {block_size} rows, got "
            f"{complete}."
        )


def _as_blocks(x: jax.Array, block_size: int) -> jax.Array:
    n_blocks = x.shape[0] // block_size
    return x[: n_blocks * block_size].reshape(n_blocks, block_size)


def block_estimates(
    kernel: Any, rows: Rows, block_size: int, axis: Axis, tile: Any = h_tile
) -> tuple[jax.Array, jax.Array]:
    """The unbiased SKCE of each block that begins on this device, and 1 for each complete block, 0
    for the others; ``[N]``."""
    rows = whole_blocks(rows, block_size, axis)
    samples = rows.predictions, rows.targets
    sums = block_sums(tile, kernel, samples, rows.weights, block_size)
    # NaN, the weight of rows that are bad, is kept.
    complete = jnp.prod(_as_blocks(rows.weights, block_size), axis=1)
    return complete * sums / (block_size * (block_size - 1)), complete


@on_devices
def _asymptotic_block_skce_test(
    axis: Axis, kernel: Any, rows: Any, block_size: int, variance: str
) -> CalibrationTestResult:
    kernel, rows = clean(kernel, *rows, axis=axis)
    n_blocks, mean, squares = summarise(*block_estimates(kernel, rows, block_size, axis), axis)
    null_error = None
    if variance == "null":
        mean_squares, _ = block_estimates(kernel, rows, block_size, axis, squared_h_tile)
        mean_square = all_sum(jnp.sum(mean_squares), axis) / n_blocks
        null_error = jnp.sqrt(2 * mean_square / (block_size * (block_size - 1) * n_blocks))
    method = f"asymptotic_block_skce_test, blocks of {block_size}, variance of {variance}"
    return z_test(n_blocks, mean, squares, method, null_error)


def summarise(
    estimates: jax.Array, complete: jax.Array, axis: Axis
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The number of complete blocks, the mean of their estimates, their squared deviations."""
    n_blocks, total = all_sum((jnp.sum(complete), jnp.sum(estimates)), axis)
    mean = total / jnp.maximum(n_blocks, 1)
    squares = jnp.sum(complete * jnp.square(estimates - mean))
    return n_blocks, mean, all_sum(squares, axis)


def z_test(
    n_blocks: jax.Array, mean: jax.Array, squares: jax.Array, method: str, null_error: Any = None
) -> CalibrationTestResult:
    """The test of what `summarise` found; all numbers are NaN if that are fewer than two blocks.

    `null_error` is the standard error under H0, if it is not that of the blocks.
    """
    enough, n_blocks = n_blocks >= 2, jnp.asarray(n_blocks, mean.dtype)
    n_blocks, estimate = (jnp.where(enough, x, jnp.nan) for x in (n_blocks, mean))
    variance = squares / (n_blocks - 1)
    # Blocks that all agree, up to rounding.
    agree = variance <= jnp.square(10 * jnp.finfo(mean.dtype).eps * mean)
    standard_error = jnp.sqrt(jnp.where(agree, 0.0, variance) / n_blocks)
    if null_error is None:
        null_error = standard_error
    # Then the sign of what they agree on decides.
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
