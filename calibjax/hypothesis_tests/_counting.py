"""The p-value of a statistic among draws of it."""

import jax
import jax.numpy as jnp


def counted_pvalue(statistic: jax.Array, draws: jax.Array) -> jax.Array:
    """(1 + #{draws >= statistic}) / (R + 1): the statistic counts as one more draw.

    Never 0, and valid at any R where the draws are exact.  A draw that is NaN counts as large, so
    that it cannot speak against the model; NaN if the statistic is.
    """
    at_least = jnp.sum(~(draws < statistic)).astype(statistic.dtype)
    pvalue = (1 + at_least) / (draws.shape[0] + 1)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)
