"""Numbers that must be valid: a ValueError where they can be looked at, else NaN."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_values
from calibjax._struct import is_traced, on_host


def is_finite(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, is finite."""
    return np.isfinite(x) if isinstance(x, (np.ndarray, np.generic)) else jnp.isfinite(x)


def is_positive(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, is positive and finite."""
    return (x > 0) & is_finite(x)


def is_nonnegative(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, is nonnegative and finite."""
    return (x >= 0) & is_finite(x)


def positive_or_nan(x: ArrayLike, name: str = "lengthscale") -> jax.Array:
    """x where it is positive and finite, else NaN: an invalid scale must poison the result.

    A number that can be looked at is a ValueError instead.  It may be a constant in compiled code,
    where XLA turns exp(-nan x) on CPUs into any number.
    """
    return _valid_or_nan(x, name, "positive and finite", is_positive)


def nonnegative_or_nan(x: ArrayLike, name: str) -> jax.Array:
    """x where it is nonnegative and finite, else NaN, or a ValueError as of `positive_or_nan`."""
    return _valid_or_nan(x, name, "nonnegative and finite", is_nonnegative)


def level_or_nan(x: jax.Array) -> jax.Array:
    """x where it is a level of quantiles, else NaN, or a ValueError as of `positive_or_nan`."""
    return _valid_or_nan(x, "level", "in [0, 1]", lambda x: (x >= 0) & (x <= 1))


def _valid_or_nan(x: ArrayLike, name: str, words: str, is_valid: Callable[[Any], Any]) -> jax.Array:
    if not is_traced(x):
        check_values(name, x, words, is_valid(on_host(x)))
        return jnp.asarray(x)
    return jnp.where(is_valid(x), x, jnp.nan)
