"""Two ends of a confidence interval, and the level at which they hold."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from calibjax._struct import is_traced


class ConfidenceInterval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: jax.Array
    high: jax.Array


def checked_level(confidence_level: Any, dtype: Any) -> Any:
    """The level as an array; a ValueError unless it is in (0, 1), or NaN inside jit."""
    if not is_traced(confidence_level):
        given = np.asarray(confidence_level)
        if not np.all((given > 0) & (given < 1)):
            raise ValueError(f"confidence_level must be in (0, 1), got {confidence_level}.")
        return given.astype(dtype)
    level = jnp.asarray(confidence_level, dtype)
    return jnp.where((level > 0) & (level < 1), level, jnp.nan)


def one_level(confidence_level: Any, dtype: Any) -> Any:
    """`checked_level` of a level that must be one number."""
    level = checked_level(confidence_level, dtype)
    if level.ndim:
        raise ValueError(f"confidence_level must be one number, got shape {list(level.shape)}.")
    return level


def normal_quantile(level: jax.Array) -> jax.Array:
    """z with P(|Z| <= z) = level for a standard normal Z."""
    return -ndtri((1 - level) / 2)
