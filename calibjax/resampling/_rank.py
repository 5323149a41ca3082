"""The rank of a statistic among draws: p-values and critical values."""

import jax
import jax.numpy as jnp

from calibjax.resampling._levels import normal_quantile

# In units of the precision of the dtype and of the largest statistic.
_ROUNDING = 256


def counted_pvalue(statistic: jax.Array, draws: jax.Array) -> jax.Array:
    """(1 + #{draws >= statistic}) / (R + 1) for R draws; the statistic counts as one more draw.

    The p-value is never 0, and it is valid at any R if the draws follow the law under H0.  A NaN
    draw counts as at least the statistic, so that it cannot lower the p-value.  A NaN statistic has
    the p-value NaN.
    """
    at_least = jnp.sum(~(draws < statistic)).astype(statistic.dtype)
    pvalue = (1 + at_least) / (draws.shape[0] + 1)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)


def counted_pvalue_with_ties(values: jax.Array) -> jax.Array:
    """`counted_pvalue` of the last of R + 1 values, where values that rounding parts are equal.

    Data sets without any event are the same data sets, and their statistics must tie.  Ties count
    as draws that are at least as large, so that the p-value stays valid.
    """
    return counted_pvalue(values[-1] - rounding_of(values), values[:-1])


def rounding_of(values: jax.Array) -> jax.Array:
    """By how much statistics of equal data may differ, for statistics along the last axis."""
    sizes = jnp.abs(jnp.where(jnp.isfinite(values), values, 0.0))
    return _ROUNDING * jnp.finfo(values.dtype).eps * jnp.max(sizes, axis=-1)


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
    index = jnp.clip(jnp.nan_to_num(rank), 1, n_draws).astype(jnp.int32) - 1
    index = jnp.broadcast_to(index, shape)[..., None]
    found = jnp.take_along_axis(ordered, index, axis=-1)[..., 0]
    reached = jnp.asarray(n_draws / (n_draws + 1), draws.dtype)
    beyond = normal_quantile(level) / normal_quantile(reached)
    return jnp.where(jnp.isnan(level), jnp.nan, found), beyond


def critical_value(distances: jax.Array, level: jax.Array) -> jax.Array:
    """The distance of rank ceil(level (R + 1)) among those of R data sets, along the last axis.

    One more data set from the same law exceeds it with a probability of at most 1 - level.
    """
    return upper_quantile(distances, level.astype(distances.dtype))[0]
