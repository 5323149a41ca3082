"""The rank of a statistic among draws, p-values and critical values, and levels of confidence."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._base.check import check_integer
from calibjax._base.struct import is_traced
from calibjax._numbers.arithmetic import ROUNDINGS_OF_SUMS, x_where

#: A level of confidence that `checked_level` has seen.
Level = jax.Array | np.ndarray


def checked_level(level: ArrayLike, dtype: DTypeLike, name: str = "confidence_level") -> Level:
    """The level as an array; a ValueError unless it is in (0, 1), or NaN inside jit."""
    if not is_traced(level):
        given = np.asarray(level)
        if not np.all((given > 0) & (given < 1)):
            raise ValueError(f"{name} must be in (0, 1), got {level}.")
        return given.astype(dtype)
    level = jnp.asarray(level, dtype)
    return x_where((level > 0) & (level < 1), level, jnp.nan)


def one_level(confidence_level: ArrayLike, dtype: DTypeLike) -> Level:
    """`checked_level` of a level that must be one number."""
    level = checked_level(confidence_level, dtype)
    if level.ndim:
        raise ValueError(f"confidence_level must be one number, got shape {list(level.shape)}.")
    return level


def check_resamples(confidence_level: ArrayLike, n_resamples: int) -> tuple[Any, int]:
    """Both options, checked: the level must be one that R resamples reach, in (0, R / (R + 1)]."""
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    level, reached = one_level(confidence_level, jnp.float32), n_resamples / (n_resamples + 1)
    if is_traced(level):
        level = x_where(level <= reached, level, jnp.nan)
    elif np.asarray(confidence_level) > reached:
        raise ValueError(
            f"confidence_level must be at most {n_resamples} / {n_resamples + 1} with "
            f"{n_resamples} resamples, got {confidence_level}."
        )
    return level, n_resamples


def rank_of_level(confidence_level: float, n_resamples: int) -> int:
    """The rank of `critical_value` for a level that `check_resamples` has let pass."""
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    return math.ceil(confidence_level * (n_resamples + 1) - 1e-6)


def normal_quantile(level: Level) -> jax.Array:
    """z with P(|Z| <= z) = level for a standard normal Z."""
    # Rounding of a level in float32 is more than what this polynomial leaves out.
    return math.sqrt(2) * lax.erf_inv(jnp.asarray(level))


# A smaller skewness is none.
_LEAST_SKEWNESS = 1e-6


def counted_pvalue(statistic: jax.Array, draws: jax.Array) -> jax.Array:
    """(1 + #{draws >= statistic}) / (R + 1) for R draws; the statistic counts as one more draw.

    Of several statistics each is compared with all draws.  The p-value is never 0, and it is valid
    at any R if the draws follow the null distribution.  A NaN draw counts as at least the
    statistic, so that it cannot lower the p-value.  A NaN statistic has the p-value NaN.
    """
    n = draws.shape[0]
    along = jnp.expand_dims(draws, range(statistic.ndim))
    smaller = jnp.sum(along < statistic[..., None], axis=-1)
    pvalue = (1 + n - smaller).astype(statistic.dtype) / (n + 1)
    return x_where(statistic == statistic, pvalue, jnp.nan)


def counted_pvalue_with_ties(values: jax.Array) -> jax.Array:
    """`counted_pvalue` of the last of R + 1 values, where values that rounding parts are equal.

    Data sets without any event are the same data sets, and their statistics must tie.  Ties count
    as draws that are at least as large, so that the p-value stays valid.
    """
    return counted_pvalue(values[-1] - rounding_of(values), values[:-1])


def host_pvalue(values: np.ndarray, rounding: float = 0.0) -> float:
    """`counted_pvalue` of the last of R + 1 values in NumPy; nearly equal values are equal."""
    draws, statistic = values[:-1], values[-1]
    return (1 + int(np.sum(~(draws < statistic - rounding)))) / values.shape[0]


def as_multiple(pvalue: jax.Array | float, n_resamples: int) -> float:
    """The multiple of 1 / (R + 1) that a p-value of R data sets is, without rounding of float32.

    So 0.05 is not above the level 0.05.
    """
    return round(float(pvalue) * (n_resamples + 1)) / (n_resamples + 1)


def rounding_of(values: jax.Array) -> jax.Array:
    """By how much statistics of equal data may differ, for statistics along the last axis."""
    sizes = jnp.abs(x_where(jnp.isfinite(values), values, 0.0))
    return ROUNDINGS_OF_SUMS * jnp.finfo(values.dtype).eps * jnp.max(sizes, axis=-1)


def upper_quantile(draws: jax.Array, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The draw of rank ceil(level (R + 1)) along the last axis, or the largest draw.

    Beside it stands the normal quantile of the level in units of the quantile of R / (R + 1), which
    is above 1 exactly if all draws are too small.
    """
    n_draws = draws.shape[-1]
    shape = jnp.broadcast_shapes(draws.shape[:-1], level.shape)
    ordered = jnp.broadcast_to(jnp.sort(draws, axis=-1), (*shape, n_draws))
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    rounding = 8 * jnp.finfo(draws.dtype).eps
    rank = jnp.ceil((level - rounding) * (n_draws + 1))
    index = jnp.minimum(x_where(rank >= 1, rank, 1.0), n_draws).astype(jnp.int32) - 1
    index = jnp.broadcast_to(index, shape)[..., None]
    found = jnp.take_along_axis(ordered, index, axis=-1)[..., 0]
    reached = jnp.asarray(n_draws / (n_draws + 1), draws.dtype)
    beyond = normal_quantile(level) / normal_quantile(reached)
    return x_where(jnp.isnan(level), jnp.nan, found), beyond


def critical_value(distances: jax.Array, level: jax.Array) -> jax.Array:
    """The distance of rank ceil(level (R + 1)) among those of R data sets, along the last axis.

    One more data set from the same law exceeds it with a probability of at most 1 - level.
    """
    return upper_quantile(distances, level.astype(distances.dtype))[0]


def holm(pvalues: np.ndarray) -> np.ndarray:
    """P-values adjusted for their number, whatever depends on what ``[n]``.

    Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = np.argsort(pvalues)
    factors = np.arange(pvalues.size, 0, -1)
    found = np.empty_like(pvalues)
    found[order] = np.minimum(np.maximum.accumulate(factors * pvalues[order]), 1.0)
    return found


def normal_scores(x: jax.Array, skewness: jax.Array, least_ratio: float = -math.inf) -> jax.Array:
    """The scores on which numbers of mean 0, variance 1 and some skewness g are nearly normal.

    With these X is nearly a shifted gamma variable, and 6 / g ((1 + g X / 2)^(1/3) - 1) + g / 6 is
    nearly standard normal (Wilson and Hilferty, The distribution of chi-square, PNAS 1931); it
    tends to X as g tends to 0.  1 + g X / 2 counts as at least `least_ratio`.
    """
    is_skew = jnp.abs(skewness) > _LEAST_SKEWNESS
    g = x_where(is_skew, skewness, 1.0)
    shift = jnp.maximum(g * x / 2, least_ratio - 1)
    root = jnp.cbrt(1 + shift)
    # (1 + s)^(1/3) - 1 = s / (r^2 + r + 1) keeps the digits of a small s.
    return x_where(is_skew, 6 / g * (shift / (jnp.square(root) + root + 1)) + g / 6, x)
