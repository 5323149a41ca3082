"""The test with the mean of block estimates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_choice, check_integer
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._numbers import root_mean_square
from calibjax._rows import Data, padded
from calibjax._sharding import Axis, all_sum, on_devices, on_one_device
from calibjax._struct import is_traced
from calibjax.discrepancy import SumOfTerms, check_inputs
from calibjax.hypothesis_tests._nulls import (
    BlockSummary,
    check_null,
    redrawn,
    summarise,
    summarise_estimates,
    z_test,
)
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals import remark_on_rare_events
from calibjax.kernels import KernelLike
from calibjax.operators import BlockH, block_h
from calibjax.resampling import counted_pvalue_with_ties


def asymptotic_block_skce_test(
    kernel: KernelLike,
    predictions: Distribution,
    targets: Targets,
    *,
    block_size: int = 2,
    variance: str = "blocks",
    null: str = "asymptotic",
    key: jax.Array | None = None,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the mean of the unbiased SKCE of N blocks of samples larger than 0?

    .. math::
        z = \\frac{\\bar\\eta}{s / \\sqrt N}, \\qquad p = 1 - \\Phi(z)

    where eta_b is the estimate of block b and blocks are B consecutive rows; the incomplete last
    block is dropped, and nothing is shuffled.  `variance` says what s is: the standard deviation of
    the estimates (ddof = 1) for "blocks", and for "null" their standard deviation under H0,
    s^2 = 2 E h^2 / (B (B-1)), where E h^2 is the mean over all pairs within blocks.

    `null` chooses what z is compared with:

    - "asymptotic": the normal law, as above.  It needs no draws, and is right as N grows: use at
      least 30 blocks.  Data without an event have a small s and a large z, so that calibrated
      models are rejected too often if fewer than some ten rare events are expected: 45 % at level
      5 % with one expected event among n = 100, in blocks of 2.
    - "model": the z of R = n_resamples data sets whose targets are drawn from the predictions,
      p = (1 + #{z* >= z}) / (R + 1), with ties counted.  If rows are independent given the
      predictions, the level is exact at every n, also for rare events.  Here s / sqrt(N) is the
      root mean square of the means of all R + 1 data sets.  Divided by an s of its own, a data set
      without an event would have the largest z, and too many events would hardly be seen.

    Larger blocks have more power; B may grow with n, and B = sqrt(n) is a fair choice for large n.
    O(n B) time for each data set, O(n) memory; with "model" 100 draws of each target
    take some 1.5 kB a row.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 4 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  With a `PITKernel` also
            `Between`, where they are censored or binned, for "asymptotic".
        block_size: B, from 2 to n / 2.
        variance: "blocks" or "null"; null="model" has a variance of its own.
        null: "asymptotic" or "model".
        key: a key of `jax.random` for "model"; None for "asymptotic".
        n_resamples: R, for "model"; draw r of a row depends only on the key, r and the number of
            the row among the kept rows.
        where: boolean mask ``[n]``; masked rows may hold anything.  A block with a masked row does
            not count.

    Returns:
        CalibrationTestResult.  Its standard_error is always the s / sqrt(N) of variance="blocks",
        so that its confidence interval is asymptotically valid whether H0 is true or not.  Inside
        jit a bad value, or fewer than two complete blocks, makes all numbers NaN.  Outside of jit
        the method of "asymptotic" says so if fewer than ten rare events are expected, which are
        targets other than the most probable one.

    Raises:
        TypeError, ValueError: as in `skce`; fewer than two complete blocks; a key is missing for
            "model", or given for "asymptotic".

    See also:
        `SKCEState` for batches that are never in memory together.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(1000, 0.5))
        >>> targets = jax.random.bernoulli(jax.random.key(0), 0.8, (1000,))
        >>> kernel = cj.default_kernel(predictions)
        >>> result = cj.asymptotic_block_skce_test(kernel, predictions, targets)
        >>> float(result.statistic)
        8.62
        >>> data = kernel, predictions, targets
        >>> exact = cj.asymptotic_block_skce_test(*data, null="model", key=jax.random.key(1))
        >>> float(exact.pvalue)
        0.001

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remarks B.1 and B.3.
    """
    terms, data = check_inputs(kernel, predictions, targets, where=where, intervals=True)
    if data.n < 4:
        raise ValueError(f"predictions must hold two blocks of at least 2 rows, got {data.n} rows.")
    block_size = check_integer("block_size", block_size, 2, data.n // 2, "n / 2 = ")
    check_choice("variance", variance, ("blocks", "null"))
    n_resamples = check_null(null, ("asymptotic", "model"), key, n_resamples, data)
    check_complete_blocks(data, block_size, at_least=2)
    data = padded(data)
    if key is None:
        result = _asymptotic_block_skce_test(terms, data, block_size, variance)
        return remark_on_rare_events(result, data, "null='model'")
    if variance != "blocks":
        raise ValueError(
            "variance must be left out for null='model', which takes the variance of the draws, "
            f"got {variance!r}."
        )
    return _model_block_skce_test((key, terms), data, block_size, n_resamples)


def check_complete_blocks(data: Data, block_size: int, at_least: int) -> None:
    """ValueError if fewer than `at_least` blocks have no masked row; a traced mask passes."""
    if data.where is None or is_traced(data.where):
        return
    with jax.ensure_compile_time_eval():
        where = np.asarray(on_one_device(data.where))
    n_blocks = data.n // block_size
    complete = where[: n_blocks * block_size].reshape(n_blocks, block_size).all(axis=1).sum()
    if complete < at_least:
        raise ValueError(
            f"where must leave at least {at_least} complete blocks of {block_size} rows, got "
            f"{complete}."
        )


@on_devices
def _asymptotic_block_skce_test(
    axis: Axis, kernel: SumOfTerms, data: Data, block_size: int, variance: str
) -> CalibrationTestResult:
    blocks = block_h(kernel, data, block_size, axis)
    method = f"asymptotic_block_skce_test, blocks of {block_size}, variance of {variance}"
    if variance == "null":
        summary, null_error = _summary_and_null_error(blocks)
        return z_test(summary, method, null_error)
    return z_test(summarise(blocks), method)


@on_devices
def _model_block_skce_test(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms], data: Data, block_size: int, n_resamples: int
) -> CalibrationTestResult:
    key, kernel = shared
    blocks = block_h(kernel, data, block_size, axis)
    summaries = redrawn(summarise, key, blocks, n_resamples)
    means = summaries.mean
    # Under H0 the means have the expectation 0, given the predictions.
    error = root_mean_square(jnp.full_like(means, 1 / (n_resamples + 1)), means)
    observed = jax.tree.map(lambda x: x[-1], summaries)
    method = f"asymptotic_block_skce_test, blocks of {block_size}, null of {n_resamples} draws"
    result = z_test(observed, f"{method} from the model", error)
    # Without an error all means are 0, as the observed z.
    values = (means / jnp.where(error == 0, 1.0, error)).at[-1].set(result.statistic)
    return dataclasses.replace(
        result, pvalue=counted_pvalue_with_ties(values), null_distribution=values[:-1]
    )


def _summary_and_null_error(blocks: BlockH) -> tuple[BlockSummary, jax.Array]:
    """The summary, and the standard error of the mean under H0 from the mean of h^2."""
    sums, squares = blocks.sums_and_squares()
    summary = summarise_estimates(blocks, blocks.estimates(sums))
    n_blocks, size = summary.n_blocks, blocks.block_size
    mean_square = all_sum(jnp.sum(blocks.estimates(squares)), blocks.axis) / n_blocks
    return summary, jnp.sqrt(2 * mean_square / (size * (size - 1) * n_blocks))
