"""The p-value of a statistic from draws under H0."""

import jax
import jax.numpy as jnp

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
