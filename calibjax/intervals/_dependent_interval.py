r"""The confidence interval for the SKCE of rows with weights, or that depend on each other.

It is the one of `_skce_interval.py`, with the estimates and the draws of `_dependent_sums.py`:
|delta*|^2 in the place of the errors of resamples, and their variance in the place of v.  The
largest variance c / n of a projection of delta is the largest eigenvalue of its covariance C, which
is at most the root of tr C^2 = v / 2, and at most tr C = E |delta|^2.

The lower end is above 0 only if |w_n|^2 exceeds its quantile for a calibrated model, too, whose
draws know that w is 0: with ten clusters they are right where |delta*|^2 are too small.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._between import Between
from calibjax._rows import Data, clean_kept_first
from calibjax._sharding import Axis, all_sum
from calibjax.discrepancy import SumOfTerms
from calibjax.intervals._errors import DrawnErrors
from calibjax.intervals._norm_intervals import (
    ConfidenceInterval,
    norm_interval,
    with_score_end,
)
from calibjax.intervals._variance import missing_variance, variance_under_model
from calibjax.operators import TiledH, tiled_h
from calibjax.resampling import DependentSums, dependent_sums, normal_quantile, row_numbers

# Folded into the key for the draws of the model.
_MODEL = 2**31 - 1


def depends(data: Data) -> bool:
    """Whether rows weigh differently, or may depend on each other."""
    return any(x is not None for x in (data.weights, data.clusters, data.times))


def dependent_estimate_and_interval(
    axis: Axis, shared: tuple[jax.Array, SumOfTerms, jax.Array], data: Data, n_resamples: int
) -> tuple[jax.Array, ConfidenceInterval]:
    """The unbiased SKCE, and its interval; `shared` is the key, the kernel and the level."""
    key, kernel, level = shared
    h, data, sums = sums_of_data(axis, (key, kernel), data, n_resamples)
    missing: ArrayLike = 0.0
    # Targets from the model would have to be censored, by a law that is not known.
    if not isinstance(data.targets, Between):
        numbers = row_numbers(data.weights, axis)
        model_key = jax.random.fold_in(key, _MODEL)
        expected, chance = variance_under_model(model_key, h.kernel, data, numbers, axis)
        squares = all_sum(jnp.sum(jnp.square(data.weights)), axis)
        missing = missing_variance(expected, chance, h.trace() / squares - sums.estimate)
        missing = missing * squares / jnp.square(h.count())
    z = normal_quantile(level)
    errors = DrawnErrors(sums.errors)
    squared_radius = jnp.maximum(errors.quantile(level), jnp.square(z) * missing)
    low, high = norm_interval(sums.biased, squared_radius)
    is_zero = sums.biased <= DrawnErrors(sums.null).quantile(level)
    interval = ConfidenceInterval(jnp.where(is_zero, 0.0, low), high)
    variance = jnp.var(sums.errors)
    largest = jnp.minimum(jnp.mean(sums.errors), jnp.sqrt(variance / 2)) + missing
    variance = variance + 2 * jnp.square(missing)
    return sums.estimate, with_score_end(interval, sums.estimate, largest, variance, z)


def sums_of_data(
    axis: Axis,
    shared: tuple[jax.Array, SumOfTerms],
    data: Data,
    n_resamples: int,
    is_normal: bool | None = None,
) -> tuple[TiledH, Data, DependentSums]:
    """H and the clean data of its rows, kept rows first, and their `dependent_sums`.

    `shared` is the key and the kernel.  Residuals of labels have normal multipliers, unless
    `is_normal` says otherwise.
    """
    key, kernel = shared
    data, n_kept = clean_kept_first(data, axis)
    h = tiled_h(kernel, data, axis)
    if is_normal is None:
        is_normal = data.predictions.has_labels
    return h, data, dependent_sums(key, h, data, n_resamples, is_normal)
