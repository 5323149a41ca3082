"""What a statistic is compared with: draws from the model, or the law of a mean of blocks."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from calibjax._check import check_choice, check_integer, check_key
from calibjax._interval_censored import Between
from calibjax._rows import Data
from calibjax._sharding import all_sum
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.intervals import MeanInterval
from calibjax.operators import BlockH, TiledH
from calibjax.resampling import counted_pvalue_with_ties, row_numbers, under_model

H = TypeVar("H", bound=TiledH | BlockH)
Statistic = TypeVar("Statistic")


def check_null(
    null: str, nulls: Collection[str], key: jax.Array | None, n_resamples: int, data: Data
) -> int:
    """n_resamples, checked; the null "model" needs a key, and the other nulls draw nothing.

    Draws would have to be censored as the targets are, by a law that is not known.
    """
    check_choice("null", null, nulls)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    if null == "model" and key is None:
        raise ValueError("key must be given for null='model', which draws targets, got None.")
    if null == "model" and isinstance(data.targets, Between):
        raise TypeError(
            "targets must be an array for null='model', which draws them, got Between; "
            "calibration_test draws targets that are censored."
        )
    if null != "model" and key is not None:
        raise ValueError(f"key must be None for null={null!r}, which draws nothing.")
    if key is not None:
        check_key(key)
    return n_resamples


def redrawn(
    statistic: Callable[[H], Statistic], key: jax.Array, h: H, n_resamples: int
) -> Statistic:
    """``statistic(h)`` for n_resamples draws of all targets, and last for the observed ones."""
    predictions, _ = h.samples

    def statistic_of_targets(targets: jax.Array) -> Statistic:
        return statistic(dataclasses.replace(h, samples=(predictions, targets)))

    numbers = row_numbers(h.weights.reshape(-1), h.axis)
    return under_model(statistic_of_targets, key, h.samples, numbers, n_resamples)


def ranked(values: jax.Array, estimate: jax.Array, **more: Any) -> CalibrationTestResult:
    """The result for the last of R + 1 values of a statistic, compared with the others."""
    return CalibrationTestResult(
        statistic=values[-1],
        pvalue=counted_pvalue_with_ties(values),
        estimate=estimate,
        null_distribution=values[:-1],
        **more,
    )


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
    return summarise_estimates(blocks, blocks.estimates(blocks.sums()))


def summarise_estimates(blocks: BlockH, estimates: jax.Array) -> BlockSummary:
    """The summary of the complete blocks, given the estimates of all blocks ``[N]``."""
    complete = blocks.complete()
    n_blocks, total = all_sum((jnp.sum(complete), jnp.sum(estimates)), blocks.axis)
    mean = total / jnp.maximum(n_blocks, 1)
    squares = jnp.sum(complete * jnp.square(estimates - mean))
    return BlockSummary(n_blocks, mean, all_sum(squares, blocks.axis))


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
        interval=MeanInterval(estimate, standard_error),
        method=method,
    )
