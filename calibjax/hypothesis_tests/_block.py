"""The tests with the mean of block estimates, of rows or a stream, and with a bound at every n."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jax.tree_util import Partial
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_flag, check_integer
from calibjax._base.sharding import Axis, all_sum, on_devices, on_one_device, optimised_on_devices
from calibjax._base.struct import is_array, is_traced, static, struct
from calibjax._data.data import NOT_PLAIN, Data, as_data, clean
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax._numbers.validity import POSITIVE, valid_or_nan
from calibjax.discrepancy import SumOfTerms, check_kernel_of
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals.rare_events import note_on_rare_events
from calibjax.intervals.skce_interval import (
    bounded_mean_interval,
    bounded_norm_interval,
    interval_of_mean,
)
from calibjax.kernels.base import KernelLike, upper_bound
from calibjax.operators.gram_matrix import BlockH, block_h, tiled_h


def asymptotic_block_skce_test(
    kernel: KernelLike,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    block_size: int = 2,
    variance: str = "blocks",
    where: ArrayLike | None = None,
) -> CalibrationTestResult:
    """Tests whether the mean of the unbiased SKCE of N blocks of samples is larger than 0.

    .. math::
        z = \\frac{\\bar\\eta}{s / \\sqrt N}, \\qquad p = 1 - \\Phi(z)

    where eta_b is the estimate of block b and blocks are B consecutive rows; the incomplete last
    block is dropped, and nothing is shuffled.  `variance` says what s is: the standard deviation of
    the estimates (ddof = 1) for "blocks", and for "null" their standard deviation under H0,
    s^2 = 2 E h^2 / (B (B-1)), where E h^2 is the mean over all pairs within blocks.

    It needs no draws, and is right as N grows: use at least 30 blocks.  Data without an event have
    a small s and a large z, so that calibrated models are rejected too often if fewer than some ten
    rare events are expected: 45 % at level 5 % with one expected event among n = 100, in blocks of
    2.  `consistency_test` of ``Partial(skce, kernel, block_size=B)`` is exact at every n.

    Larger blocks have more power; B may grow with n, and B = sqrt(n) is a fair choice for large n.
    O(n B) time, O(n) memory.

    Args:
        kernel: usually a TensorProduct, or what `default_kernel` returns.
        predictions, targets: as in `Data`, n >= 4 rows.  With a `PITKernel` also
            `IntervalCensored`.
        block_size: B, from 2 to n / 2.
        variance: "blocks" or "null".
        where: boolean mask ``[n]``; masked rows may hold anything.  A block with a masked row does
            not count.

    Returns:
        CalibrationTestResult.  Its standard_error is always the s / sqrt(N) of variance="blocks",
        so that its confidence interval is asymptotically valid whether H0 is true or not.  Inside
        jit a bad value, or fewer than two complete blocks, makes all numbers NaN.  Outside of jit
        the method says so if fewer than ten rare events are expected, which are targets other than
        the most probable one.

    Raises:
        TypeError, ValueError: as in `skce`; fewer than two complete blocks.

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

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Remarks B.1 and B.3.
    """
    data = as_data(predictions, targets, where=where, intervals=True, without=NOT_PLAIN)
    terms = check_kernel_of(kernel, data)
    if data.n < 4:
        raise ValueError(f"predictions must hold two blocks of at least 2 rows, got {data.n} rows.")
    block_size = check_integer("block_size", block_size, 2, data.n // 2, "n / 2 = ")
    check_choice("variance", variance, ("blocks", "null"))
    check_complete_blocks(data, block_size, at_least=2)
    data = padded(data)
    result = _asymptotic_block_skce_test(terms, data, block_size, variance)
    return note_on_rare_events(result, data, "consistency_test")


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
    if variance == "blocks":
        return z_test(summarise(blocks, blocks.sums()), method)
    sums, squares = blocks.sums_and_squares()
    summary = summarise(blocks, sums)
    # The standard error of the mean under H0 follows from the mean of h^2.
    n_blocks, size = summary.n_blocks, blocks.block_size
    mean_square = all_sum(jnp.sum(blocks.estimates(squares)), axis) / n_blocks
    return z_test(summary, method, jnp.sqrt(2 * mean_square / (size * (size - 1) * n_blocks)))


def summarise(blocks: BlockH, sums: jax.Array) -> "SKCEState":
    """The state of the complete blocks of all devices, given the sums of all blocks ``[N]``."""
    complete, estimates = blocks.complete(), blocks.estimates(sums)
    n_blocks, total = all_sum((jnp.sum(complete), jnp.sum(estimates)), blocks.axis)
    mean = total / jnp.maximum(n_blocks, 1)
    squares = jnp.sum(complete * jnp.square(estimates - mean))
    return SKCEState(n_blocks, mean, all_sum(squares, blocks.axis), blocks.block_size)


def z_test(
    state: "SKCEState", method: str, null_error: jax.Array | None = None
) -> CalibrationTestResult:
    """The z-test of a state; all numbers are NaN if it has fewer than two blocks.

    `null_error` is the standard error of the mean under H0; None takes the standard error that the
    estimates of the blocks show.
    """
    enough, mean = state.n_blocks >= 2, jnp.asarray(state.mean)
    counted = jnp.asarray(state.n_blocks, mean.dtype)
    n_blocks, estimate = (jnp.where(enough, x, jnp.nan) for x in (counted, mean))
    variance = state.squares / (n_blocks - 1)
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
        interval=Partial(interval_of_mean, estimate, standard_error),
        method=method,
    )


@struct
class SKCEState:
    """The block estimate of the SKCE and its test, over a stream of batches.

    The state is a pytree of three numbers, and can be a carry of `jax.lax.scan` or a part of your
    training state.  Start with `empty`, `update` with each batch, `merge` the states of other
    workers, and `compute` the test at the end.

    The test is valid once, after a number of batches that you chose beforehand.  If you look
    repeatedly and stop at a small p-value, false alarms are frequent: among 100 calibrated streams
    of 60 batches of 500 rows, p < 0.05 occurred at some batch in 25.  `CalibrationMonitor` is valid
    at every look.

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
        predictions: Distribution | Data,
        targets: Targets | None = None,
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
        data = as_data(predictions, targets, where=where, intervals=True, without=NOT_PLAIN)
        terms = check_kernel_of(kernel, data)
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
        return z_test(self, f"SKCEState, blocks of {self.block_size}")


@optimised_on_devices
def _state_after_batch(axis: Axis, shared: tuple[SKCEState, SumOfTerms], data: Data) -> SKCEState:
    state, kernel = shared
    blocks = block_h(kernel, data, state.block_size, axis)
    batch, dtype = summarise(blocks, blocks.sums()), state.mean.dtype
    # The blocks are counted as integers, because float32 could not hold the number.  If a row is
    # invalid, the number is 0 and the mean is NaN.
    n_blocks = all_sum(jnp.sum(blocks.complete() > 0, dtype=state.n_blocks.dtype), axis)
    mean, squares = batch.mean.astype(dtype), batch.squares.astype(dtype)
    return state.merge(SKCEState(n_blocks, mean, squares, state.block_size))


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
        predictions, targets: as in `Data`.  With a `PITKernel` also `IntervalCensored`.
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
