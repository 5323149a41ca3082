"""Critical values: which rank among the distances of redrawn data sets is one of a level."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._struct import is_traced
from calibjax.intervals._confidence_interval import one_level
from calibjax.intervals._errors import upper_quantile


def check_level(confidence_level: Any, n_resamples: int) -> Any:
    """The level as an array; it must be in (0, R / (R + 1)], or becomes NaN inside jit."""
    level = one_level(confidence_level, jnp.float32)
    reached = n_resamples / (n_resamples + 1)
    if not is_traced(level):
        if confidence_level > reached:
            raise ValueError(
                f"confidence_level must be at most {n_resamples} / {n_resamples + 1} with "
                f"{n_resamples} resamples, got {confidence_level}."
            )
        return level
    return jnp.where(level <= reached, level, jnp.nan)


def critical_value(distances: jax.Array, level: jax.Array) -> jax.Array:
    """The distance of rank ceil(level (R + 1)) among those of R data sets, along the last axis.

    One more data set from the same law exceeds it with a probability of at most 1 - level.
    """
    return upper_quantile(distances, level.astype(distances.dtype))[0]


def rank_of_level(confidence_level: float, n_resamples: int) -> int:
    """The rank of `critical_value` for a level that `check_level` has let pass."""
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    return math.ceil(confidence_level * (n_resamples + 1) - 1e-6)
