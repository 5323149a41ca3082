"""The test from concentration inequalities, which is valid at every n."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_flag, check_integer, check_values
from calibjax._data import Data
from calibjax._distribution import Distribution
from calibjax._door import check_inputs
from calibjax._sharding import Axis, on_devices
from calibjax._struct import is_array, is_traced
from calibjax.estimators import estimate_skce
from calibjax.hypothesis_tests._block import check_complete_blocks, summarise
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import KernelLike, upper_bound
from calibjax.operators import block_h, tiled_h


def distribution_free_skce_test(
    kernel: KernelLike,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    unbiased: bool = True,
    block_size: int | None = None,
    kernel_bound: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the SKCE larger than concentration inequalities allow for a calibrated model?

    For kernels with values in [0, K] we have |h| <= B = 2 K, and

    .. math::
        p = \\exp\\Bigl(-\\frac M2 \\bigl(\\mathrm{SKCE}_u / B\\bigr)^2\\Bigr)
        \\quad\\text{or, biased,}\\quad
        p = \\exp\\Bigl(-\\frac12 \\max\\bigl(0, \\sqrt{n \\, \\mathrm{SKCE}_b / B} - 1\\bigr)^2
        \\Bigr)

    bounds the p-value.  M is the number of independent pairs, floor(n / 2), or with blocks
    floor(n / block_size) floor(block_size / 2).  p = 1 if the estimate is <= 0.  It is a bound, not
    an approximation: the level holds at every n, at the price of power.  The bound for the biased
    estimate is sharper, but needs a positive definite kernel.  O(n^2) time, or O(n block_size) with
    blocks; O(n) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        unbiased: whether to use the unbiased estimate instead of the biased one.
        block_size: as in `skce`, for the unbiased estimate only; blocks with a masked row do not
            count.
        kernel_bound: K, a positive number; None derives it from the kernel.  For a kernel with
            negative values pass twice a bound of its absolute value.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows.

    Returns:
        CalibrationTestResult; its statistic is the estimate.  Inside jit a bad value, or fewer than
        two kept rows, makes all numbers NaN.

    Raises:
        TypeError, ValueError: as in `skce`; block_size is given for the biased estimate; no bound
            can be derived for a kernel of your own.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.5))
        >>> kernel = cj.default_kernel(predictions)
        >>> targets = jnp.ones(100, int)
        >>> result = cj.distribution_free_skce_test(kernel, predictions, targets, unbiased=False)
        >>> float(result.pvalue)
        0.000335

    Reference: Widmann, Lindsten and Zachariah, Calibration tests in multi-class classification: a
    unifying framework, NeurIPS 2019, distribution-free bounds; Hoeffding, Probability inequalities
    for sums of bounded random variables, 1963, Section 5.
    """
    kernel, data = check_inputs(kernel, predictions, targets, where)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, data.n, "n = ")
        if not unbiased:
            raise ValueError(f"block_size must be None for the biased estimate, got {block_size}.")
        check_complete_blocks(data, block_size, at_least=1)
    bound = upper_bound(kernel) if kernel_bound is None else _checked_bound(kernel_bound)
    return _distribution_free_skce_test((kernel, bound), data, unbiased, block_size)


def _checked_bound(kernel_bound: Any) -> Any:
    """The bound as it is; TypeError or ValueError unless it is a positive and finite number."""
    if not is_array(kernel_bound) or jnp.ndim(kernel_bound) > 0:
        raise TypeError(f"kernel_bound must be a number, got {type(kernel_bound).__name__}.")
    if not is_traced(kernel_bound):
        with jax.ensure_compile_time_eval():
            valid = (jnp.asarray(kernel_bound) > 0) & jnp.isfinite(kernel_bound)
            check_values("kernel_bound", kernel_bound, "positive and finite", valid)
    return kernel_bound


@on_devices
def _distribution_free_skce_test(
    axis: Axis, shared: Any, data: Data, unbiased: bool, block_size: int | None
) -> CalibrationTestResult:
    kernel, kernel_bound = shared
    if block_size is None:
        h = tiled_h(kernel, data, axis)
        n, estimate = h.count(), estimate_skce(h, unbiased)
        estimate, n_pairs = jnp.where(n >= 2, estimate, jnp.nan), jnp.floor(n / 2)
    else:
        blocks = block_h(kernel, data, block_size, axis)
        n_blocks, estimate, _ = summarise(blocks)
        estimate = jnp.where(n_blocks > 0, estimate, jnp.nan)
        n, n_pairs = n_blocks * block_size, n_blocks * (block_size // 2)
    bound = jnp.asarray(kernel_bound, estimate.dtype)
    ratio = jnp.maximum(estimate, 0.0) / (2 * jnp.where(bound > 0, bound, jnp.nan))
    if unbiased:
        exponent = n_pairs * jnp.square(ratio)
    else:
        exponent = jnp.square(jnp.maximum(jnp.sqrt(n * ratio) - 1, 0.0))
    kind = "unbiased" if unbiased else "biased"
    return CalibrationTestResult(
        statistic=estimate,
        pvalue=jnp.exp(-exponent / 2),
        estimate=estimate,
        method=f"distribution_free_skce_test, {kind}"
        + (f", blocks of {block_size}" if block_size else ""),
    )
