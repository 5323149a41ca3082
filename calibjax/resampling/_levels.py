"""Levels of confidence, and the quantiles of a normal law at them."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from calibjax._check import check_integer
from calibjax._struct import is_traced


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


def check_resamples(confidence_level: Any, n_resamples: Any) -> dict[str, Any]:
    """Both options, checked: the level must be one that R resamples reach, in (0, R / (R + 1)]."""
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    level, reached = one_level(confidence_level, jnp.float32), n_resamples / (n_resamples + 1)
    if is_traced(level):
        level = jnp.where(level <= reached, level, jnp.nan)
    elif confidence_level > reached:
        raise ValueError(
            f"confidence_level must be at most {n_resamples} / {n_resamples + 1} with "
            f"{n_resamples} resamples, got {confidence_level}."
        )
    return {"confidence_level": level, "n_resamples": n_resamples}


def rank_of_level(confidence_level: float, n_resamples: int) -> int:
    """The rank of `critical_value` for a level that `check_resamples` has let pass."""
    # 0.95 of 1000 draws is the draw 950 in spite of rounding.
    return math.ceil(confidence_level * (n_resamples + 1) - 1e-6)


def normal_quantile(level: jax.Array) -> jax.Array:
    """z with P(|Z| <= z) = level for a standard normal Z."""
    return -ndtri((1 - level) / 2)
