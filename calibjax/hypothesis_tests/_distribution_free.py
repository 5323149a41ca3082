"""The test with a bound of the SKCE that holds at every n."""

import jax.numpy as jnp
from jax.tree_util import Partial
from jax.typing import ArrayLike

from calibjax._base.check import check_flag, check_integer
from calibjax._base.sharding import Axis, optimised_on_devices
from calibjax._base.struct import is_array
from calibjax._data.data import NOT_PLAIN, Data, as_data, clean
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax._numbers.validity import POSITIVE, valid_or_nan
from calibjax.discrepancy import SumOfTerms, check_kernel_of
from calibjax.hypothesis_tests._block import check_complete_blocks, summarise
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals.skce_interval import bounded_mean_interval, bounded_norm_interval
from calibjax.kernels.base import KernelLike, upper_bound
from calibjax.operators.blocks import block_h
from calibjax.operators.gram_matrix import tiled_h


def distribution_free_skce_test(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    unbiased: bool = True,
    block_size: int | None = None,
    kernel_bound: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Tests whether the SKCE is larger than a calibrated model allows, valid for every n.

    The level holds at every n, also for rare events, for independent samples.  The p-value is an
    upper bound without draws, and has little power.  For kernels with values in [0, K] we have
    |h| <= B = 2 K, and

    .. math::
        p = \\exp\\Bigl(-\\frac M2 \\bigl(\\mathrm{SKCE}_u / B\\bigr)^2\\Bigr)
        \\quad\\text{or, biased,}\\quad
        p = \\exp\\Bigl(-\\frac12 \\max\\bigl(0, \\sqrt{n \\, \\mathrm{SKCE}_b / B} - 1\\bigr)^2
        \\Bigr)

    bounds the p-value.  M is the number of independent pairs, floor(n / 2), or with blocks
    floor(n / block_size) floor(block_size / 2).  p = 1 if the estimate is <= 0.  The bound for the
    biased estimate is sharper, but needs a positive definite kernel.

    O(n^2) time, or O(n block_size) with blocks; O(n) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`.  With a `PITKernel` also `Between`.
        unbiased: whether to use the unbiased estimate instead of the biased one.
        block_size: as in `skce`, for the unbiased estimate only; blocks with a masked row do not
            count.
        kernel_bound: K, a positive number; None derives it from the kernel.  For a
            kernel with negative values pass twice a bound of its absolute value.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows.

    Returns:
        CalibrationTestResult; its statistic is the estimate.  The confidence_interval holds for
        every n, as the p-value does.  Inside jit a bad value, or fewer than two kept rows, makes
        all numbers NaN.

    Raises:
        TypeError, ValueError: as in `skce`; block_size is given for the biased estimate; no bound
            can be derived for a kernel of your own.

    See also:
        `calibration_test`, and `consistency_test` of ``Partial(skce, kernel)``, which reject far
        more often.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.5))
        >>> data = cj.default_kernel(predictions), predictions, jnp.arange(100) < 70
        >>> float(cj.distribution_free_skce_test(*data).pvalue)
        0.965

    Reference: Widmann, Lindsten and Zachariah, Calibration tests in multi-class classification: a
    unifying framework, NeurIPS 2019, distribution-free bounds; Hoeffding, Probability inequalities
    for sums of bounded random variables, 1963, Section 5.
    """
    data = as_data(predictions, targets, where=where, intervals=True, without=NOT_PLAIN)
    checked = check_kernel_of(kernel, data)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, data.n, "n = ")
        if not unbiased:
            raise ValueError(f"block_size must be None for the biased estimate, got {block_size}.")
        check_complete_blocks(data, block_size, at_least=1)
    data = padded(data)
    bound = upper_bound(kernel) if kernel_bound is None else _checked_bound(kernel_bound)
    return _distribution_free_skce_test((checked, bound), data, unbiased, block_size)


def _checked_bound(kernel_bound: ArrayLike) -> ArrayLike:
    """The bound; TypeError or ValueError unless it is a positive and finite number."""
    if not is_array(kernel_bound) or jnp.ndim(kernel_bound) > 0:
        raise TypeError(f"kernel_bound must be a number, got {type(kernel_bound).__name__}.")
    return valid_or_nan(POSITIVE, kernel_bound, "kernel_bound")


@optimised_on_devices
def _distribution_free_skce_test(
    axis: Axis,
    shared: tuple[SumOfTerms, ArrayLike],
    data: Data,
    unbiased: bool,
    block_size: int | None,
) -> CalibrationTestResult:
    kernel, kernel_bound = shared
    if block_size is None:
        h = tiled_h(kernel, clean(data, axis), axis)
        n = h.count()
        mean = h.pair_sum() / (n * (n - 1))
        estimate = mean if unbiased else (n - 1) / n * mean + h.trace() / jnp.square(n)
        estimate, n_pairs = jnp.where(n >= 2, estimate, jnp.nan), jnp.floor(n / 2)
    else:
        blocks = block_h(kernel, data, block_size, axis)
        found = summarise(blocks, blocks.sums())
        n, estimate = found.n_blocks, jnp.where(found.n_blocks > 0, found.mean, jnp.nan)
        n_pairs = n * (block_size // 2)
    bound = jnp.asarray(kernel_bound, estimate.dtype)
    bound = jnp.where(bound > 0, bound, jnp.nan)
    ratio = jnp.maximum(estimate, 0.0) / (2 * bound)
    if unbiased:
        exponent = n_pairs * jnp.square(ratio)
        interval = Partial(bounded_mean_interval, estimate, bound, n_pairs)
    else:
        exponent = jnp.square(jnp.maximum(jnp.sqrt(n * ratio) - 1, 0.0))
        interval = Partial(bounded_norm_interval, estimate, bound, n)
    kind = "unbiased" if unbiased else "biased"
    of_blocks = f", blocks of {block_size}" if block_size else ""
    return CalibrationTestResult(
        statistic=estimate,
        pvalue=jnp.exp(-exponent / 2),
        estimate=estimate,
        interval=interval,
        method=f"distribution_free_skce_test, {kind}{of_blocks}",
    )
