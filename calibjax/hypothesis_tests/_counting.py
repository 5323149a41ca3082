"""The p-value of a statistic from draws under H0."""

import jax
import jax.numpy as jnp


def counted_pvalue(statistic: jax.Array, draws: jax.Array) -> jax.Array:
    """(1 + #{draws >= statistic}) / (R + 1) for R draws; the statistic counts as one more draw.

    The p-value is never 0, and it is valid at any R if the draws follow the law under H0.  A NaN
    draw counts as at least the statistic, so that it cannot lower the p-value.  A NaN statistic has
    the p-value NaN.
    """
    at_least = jnp.sum(~(draws < statistic)).astype(statistic.dtype)
    pvalue = (1 + at_least) / (draws.shape[0] + 1)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)
