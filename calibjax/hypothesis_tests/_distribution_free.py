"""The test that is valid at every n."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_flag, check_integer, check_values
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import as_pytree, is_array, is_traced
from calibjax.estimators import Inputs, check_inputs, clean, local_skce
from calibjax.hypothesis_tests._block import block_estimates, check_complete_blocks, summarise
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.kernels import upper_bound


def distribution_free_skce_test(
    kernel: Any,
    predictions: Any,
    targets: ArrayLike,
    *,
    unbiased: bool = True,
    block_size: int | None = None,
    kernel_bound: float | None = None,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the SKCE larger than concentration inequalities allow for a calibrated model?

    With |h| <= B = 2 K for kernels with values in [0, K], and p = 1 where the estimate is <= 0,

    .. math::
        p = \\exp\\Bigl(-\\frac M2 \\bigl(\\mathrm{SKCE}_u / B\\bigr)^2\\Bigr)
        \\quad\\text{or, biased,}\\quad
        p = \\exp\\Bigl(-\\frac12 \\max\\bigl(0, \\sqrt{n \\, \\mathrm{SKCE}_b / B} - 1\\bigr)^2
        \\Bigr)

    where M = floor(n / 2), or with blocks M = floor(n / block_size) floor(block_size / 2), the
    number of independent pairs.  A bound, not an approximation: the level holds at every n, and at
    the price of power.  The biased one is the sharper, and needs a positive definite kernel.
    O(n^2) time, or O(n block_size) with blocks; O(n) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.
        unbiased: which estimate; the biased one has no block_size.
        block_size: as in `skce`; blocks with a masked row do not count.
        kernel_bound: K; by default derived from the kernel.  For a kernel with negative values pass
            twice the bound of its absolute value.
        where: boolean mask ``[n]``; masked rows may hold anything, and n is the number of others.

    Returns:
        CalibrationTestResult; its statistic is the estimate.  Inside jit a bad value, or fewer than
        two kept rows, make all numbers NaN.

    Raises:
        TypeError, ValueError: as in `skce`; no bound can be derived for a kernel of your own.

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
    inputs = Inputs(as_pytree(kernel), predictions, targets, where)
    n = check_inputs(inputs)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, n, "n = ")
        if not unbiased:
            raise ValueError(f"block_size must be None for the biased estimate, got {block_size}.")
        check_complete_blocks(where, block_size, at_least=1)
    if kernel_bound is None:
        shared = inputs.kernel, upper_bound(kernel)
        return _distribution_free_skce_test(shared, inputs[1:], unbiased, block_size)
    if not is_array(kernel_bound) or jnp.ndim(kernel_bound) > 0:
        raise TypeError(f"kernel_bound must be a number, got {type(kernel_bound).__name__}.")
    if not is_traced(kernel_bound):
        with jax.ensure_compile_time_eval():
            valid = (jnp.asarray(kernel_bound) > 0) & jnp.isfinite(kernel_bound)
            check_values("kernel_bound", kernel_bound, "positive and finite", valid)
    shared = inputs.kernel, kernel_bound
    return _distribution_free_skce_test(shared, inputs[1:], unbiased, block_size)


@on_devices
def _distribution_free_skce_test(
    axis: Axis, shared: Any, inputs: Any, unbiased: bool, block_size: int | None
) -> CalibrationTestResult:
    kernel, kernel_bound = shared
    kernel, rows = clean(kernel, *inputs, axis=axis)
    n = all_sum(jnp.sum(rows.weights), axis)
    if block_size is None:
        estimate = local_skce(axis, kernel, inputs, unbiased, None)
        estimate, n_pairs = jnp.where(n >= 2, estimate, jnp.nan), jnp.floor(n / 2)
    else:
        n_blocks, estimate, _ = summarise(*block_estimates(kernel, rows, block_size, axis), axis)
        estimate = jnp.where(n_blocks > 0, estimate, jnp.nan)
        n_pairs = n_blocks * (block_size // 2)
    bound = jnp.asarray(kernel_bound, estimate.dtype)
    ratio = jnp.maximum(estimate, 0.0) / (2 * jnp.where(bound > 0, bound, jnp.nan))
    if unbiased:
        exponent = n_pairs * jnp.square(ratio)
    else:
        exponent = jnp.square(jnp.maximum(jnp.sqrt(n * ratio) - 1, 0.0))
    described = "unbiased" if unbiased else "biased"
    return CalibrationTestResult(
        statistic=estimate,
        pvalue=jnp.exp(-exponent / 2),
        estimate=estimate,
        method=f"distribution_free_skce_test, {described}"
        + (f", blocks of {block_size}" if block_size else ""),
    )
