"""The tests with the SKCE that are valid at every n: a bound, or draws from the model."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_flag, check_integer, check_values
from calibjax._distribution import Distribution
from calibjax._interval_censored import Targets
from calibjax._rows import Data, clean, padded
from calibjax._sharding import Axis, on_devices
from calibjax._struct import is_array, is_traced
from calibjax.discrepancy import SumOfTerms, check_inputs
from calibjax.hypothesis_tests._block import check_complete_blocks
from calibjax.hypothesis_tests._nulls import check_null, ranked, redrawn, summarise
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals import (
    BoundedMeanInterval,
    BoundedNormInterval,
    DrawnErrors,
    IntervalOf,
    NormInterval,
)
from calibjax.kernels import KernelLike, upper_bound
from calibjax.operators import BlockH, TiledH, block_h, tiled_h
from calibjax.resampling import rounding_of


def distribution_free_skce_test(
    kernel: KernelLike,
    predictions: Distribution,
    targets: Targets,
    *,
    unbiased: bool = True,
    block_size: int | None = None,
    kernel_bound: ArrayLike | None = None,
    null: str = "bound",
    key: jax.Array | None = None,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Is the SKCE larger than a calibrated model allows, whatever n is?

    The level holds at every n, also for rare events.  `null` chooses the p-value.  "bound" is an
    upper bound for independent samples, without draws, and has little power.  "model" has the power
    that the estimate has; its level is exact for targets that are independent given the
    predictions.

    **bound.**  For kernels with values in [0, K] we have |h| <= B = 2 K, and

    .. math::
        p = \\exp\\Bigl(-\\frac M2 \\bigl(\\mathrm{SKCE}_u / B\\bigr)^2\\Bigr)
        \\quad\\text{or, biased,}\\quad
        p = \\exp\\Bigl(-\\frac12 \\max\\bigl(0, \\sqrt{n \\, \\mathrm{SKCE}_b / B} - 1\\bigr)^2
        \\Bigr)

    bounds the p-value.  M is the number of independent pairs, floor(n / 2), or with blocks
    floor(n / block_size) floor(block_size / 2).  p = 1 if the estimate is <= 0.  The bound for the
    biased estimate is sharper, but needs a positive definite kernel.

    **model.**  p = (1 + #{T* >= T}) / (R + 1), with ties counted, for the estimates T* of
    R = n_resamples data sets whose targets are drawn from the predictions.

    O(n^2) time, or O(n block_size) with blocks, for each data set; O(n) memory, where with
    "model" 100 draws of each target take some 1.5 kB a row.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions: a batch of n >= 2 predictions of one family.
        targets: array ``[n]`` or ``[n, d]``; class labels are ``0 … m-1``.  With a `PITKernel` also
            `Between`, where they are censored or binned, for "bound".
        unbiased: whether to use the unbiased estimate instead of the biased one.
        block_size: as in `skce`, for the unbiased estimate only; blocks with a masked row do not
            count.
        kernel_bound: K, a positive number, for "bound"; None derives it from the kernel.  For a
            kernel with negative values pass twice a bound of its absolute value.
        null: "bound" or "model".
        key: a key of `jax.random` for "model"; None for "bound".
        n_resamples: R, for "model"; draw r of a row depends only on the key, r and the number of
            the row among the kept rows.
        where: boolean mask ``[n]``; masked rows may hold anything.  n counts the kept rows.

    Returns:
        CalibrationTestResult; its statistic is the estimate.  The confidence_interval of "bound"
        holds for every n, as the p-value does; the one of "model" takes the errors of the drawn
        data sets, larger ones if the observed data vary more than these.  Inside jit a bad value,
        or fewer than two kept rows, makes all numbers NaN.

    Raises:
        TypeError, ValueError: as in `skce`; block_size is given for the biased estimate; no bound
            can be derived for a kernel of your own; a key is missing for "model", or given for
            "bound".

    See also:
        `calibration_test`, which rejects far more often.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.5))
        >>> data = cj.default_kernel(predictions), predictions, jnp.arange(100) < 70
        >>> float(cj.distribution_free_skce_test(*data).pvalue)
        0.965
        >>> key = jax.random.key(0)
        >>> float(cj.distribution_free_skce_test(*data, null="model", key=key).pvalue)
        0.001

    Reference: Widmann, Lindsten and Zachariah, Calibration tests in multi-class classification: a
    unifying framework, NeurIPS 2019, distribution-free bounds; Hoeffding, Probability inequalities
    for sums of bounded random variables, 1963, Section 5.
    """
    checked, data = check_inputs(kernel, predictions, targets, where=where, intervals=True)
    unbiased = check_flag("unbiased", unbiased)
    if block_size is not None:
        block_size = check_integer("block_size", block_size, 2, data.n, "n = ")
        if not unbiased:
            raise ValueError(f"block_size must be None for the biased estimate, got {block_size}.")
        check_complete_blocks(data, block_size, at_least=1)
    n_resamples = check_null(null, ("bound", "model"), key, n_resamples, data)
    data = padded(data)
    if key is not None:
        return _model_skce_test((key, checked), data, unbiased, block_size, n_resamples)
    bound = upper_bound(kernel) if kernel_bound is None else _checked_bound(kernel_bound)
    return _distribution_free_skce_test((checked, bound), data, unbiased, block_size)


def _checked_bound(kernel_bound: ArrayLike) -> ArrayLike:
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
    axis: Axis,
    shared: tuple[SumOfTerms, ArrayLike],
    data: Data,
    unbiased: bool,
    block_size: int | None,
) -> CalibrationTestResult:
    kernel, kernel_bound = shared
    h = _operator(kernel, data, block_size, axis)
    found = _estimates(h)
    estimate = found.unbiased if unbiased else found.biased
    bound = jnp.asarray(kernel_bound, estimate.dtype)
    bound = jnp.where(bound > 0, bound, jnp.nan)
    ratio = jnp.maximum(estimate, 0.0) / (2 * bound)
    if unbiased:
        exponent = found.n_pairs * jnp.square(ratio)
        interval: IntervalOf = BoundedMeanInterval(estimate, bound, found.n_pairs)
    else:
        exponent = jnp.square(jnp.maximum(jnp.sqrt(found.n_rows * ratio) - 1, 0.0))
        interval = BoundedNormInterval(estimate, bound, found.n_rows)
    return CalibrationTestResult(
        statistic=estimate,
        pvalue=jnp.exp(-exponent / 2),
        estimate=estimate,
        interval=interval,
        method=_method(unbiased, block_size),
    )


@on_devices
def _model_skce_test(
    axis: Axis,
    shared: tuple[jax.Array, SumOfTerms],
    data: Data,
    unbiased: bool,
    block_size: int | None,
    n_resamples: int,
) -> CalibrationTestResult:
    key, kernel = shared
    h = _operator(kernel, data, block_size, axis)
    found = redrawn(_estimates, key, h, n_resamples)
    values = found.unbiased if unbiased else found.biased
    # Under H0 the biased estimates of the draws are squared errors.  Without their diagonals they
    # are unbiased ones, to which the diagonal of the data is added.
    diagonal = found.biased[-1] - values[-1]
    # The draws vary as the data do if the model is right; if these vary more, so do the errors.
    expected = jnp.mean(found.diagonal[:-1])
    excess = jnp.maximum(found.diagonal[-1] / jnp.where(expected == 0, 1.0, expected), 1.0)
    errors = DrawnErrors(diagonal + rounding_of(values) + excess * values[:-1])
    interval = NormInterval(found.biased[-1], errors)
    method = f"{_method(unbiased, block_size)}, null of {n_resamples} draws from the model"
    return ranked(values, values[-1], interval=interval, method=method)


def _operator(
    kernel: SumOfTerms, data: Data, block_size: int | None, axis: Axis
) -> TiledH | BlockH:
    """H of all pairs, or of the pairs within blocks."""
    if block_size is None:
        return tiled_h(kernel, clean(data, axis), axis)
    return block_h(kernel, data, block_size, axis)


class _Estimates(NamedTuple):
    """Both estimates of the SKCE, and what they are made of; NaN if there is no pair.

    Args:
        unbiased, biased: the estimates, means over blocks if there are blocks.
        diagonal: the mean of h_ii.
        n_rows, n_pairs: the numbers of rows, and of pairs that are independent.
    """

    unbiased: jax.Array
    biased: jax.Array
    diagonal: jax.Array
    n_rows: jax.Array
    n_pairs: jax.Array


def _estimates(h: TiledH | BlockH) -> _Estimates:
    if isinstance(h, TiledH):
        n = h.count()
        size: jax.Array | int = n
        n_pairs = jnp.floor(n / 2)
        unbiased = jnp.where(n >= 2, h.pair_sum() / (n * (n - 1)), jnp.nan)
    else:
        (n_blocks, unbiased, _), block_size = summarise(h), h.block_size
        unbiased = jnp.where(n_blocks > 0, unbiased, jnp.nan)
        n, n_pairs, size = n_blocks * block_size, n_blocks * (block_size // 2), block_size
        h = dataclasses.replace(h, weights=h.weights * h.complete()[:, None])
    diagonal = h.trace() / n
    return _Estimates(unbiased, ((size - 1) * unbiased + diagonal) / size, diagonal, n, n_pairs)


def _method(unbiased: bool, block_size: int | None) -> str:
    kind = "unbiased" if unbiased else "biased"
    of_blocks = f", blocks of {block_size}" if block_size else ""
    return f"distribution_free_skce_test, {kind}{of_blocks}"
