"""Numbers that must be valid: a ValueError where they can be checked, else NaN."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_values
from calibjax._base.struct import is_traced, on_host, widest_dtype
from calibjax._numbers.arithmetic import fast_where

#: How far the sum of a row of probabilities may be from 1, and that of one with 16 bits.
TOLERANCE, TOLERANCE_OF_16_BITS = 1e-3, 1e-2


#: An array of NumPy or of jax.
ArrayT = TypeVar("ArrayT", jax.Array, np.ndarray)


def is_finite(x: ArrayT) -> ArrayT:
    """Whether x, an array of NumPy or of jax, is finite."""
    return np.isfinite(x) if isinstance(x, (np.ndarray, np.generic)) else jnp.isfinite(x)


def are_whole(*numbers: np.ndarray) -> bool:
    """Whether all numbers of some arrays are whole, as counts."""
    return all(np.array_equal(x, np.round(x)) for x in numbers)


def is_nonnegative(x: ArrayT) -> ArrayT:
    """Whether x, an array of NumPy or of jax, is nonnegative and finite."""
    return (x >= 0) & is_finite(x)


def probability_vectors(weights: jax.Array) -> tuple[str, jax.Array]:
    """What a row of probabilities must be, in words, and which rows satisfy it, ``[n]``."""
    # A 16-bit softmax rounds each entry to 3 digits, and its rows sum to 1 within some 2e-3.  They
    # are also valid as 32 bits: a row is known by its entries, of at most 11 binary digits.
    shown = TOLERANCE_OF_16_BITS if weights.dtype.itemsize == 2 else TOLERANCE
    weights = weights.astype(widest_dtype(weights))
    off = abs(weights.sum(axis=-1) - 1)
    if isinstance(weights, np.ndarray):
        mantissa = np.frexp(weights)[0] * 2**11
        is_rounded, where = mantissa == np.floor(mantissa), np.where
    else:
        is_rounded, where = lax.reduce_precision(weights, 8, 10) == weights, fast_where
    # How far off a row may be: what its worst entry allows, which is nothing if it is negative.
    allowed = where(is_rounded, *np.array([TOLERANCE_OF_16_BITS, TOLERANCE], weights.dtype))
    valid = off <= where(weights >= 0, allowed, -1.0).min(axis=-1)
    return f"nonnegative with rows that sum to one within {shown:g}", valid


class Constraint(NamedTuple):
    """A condition on a parameter.

    Args:
        words: the condition in words, for error messages.
        is_valid: tells which elements of an array, of NumPy or of jax, satisfy the condition.
        is_static: whether it is a Python number, part of the structure, and not an array.
    """

    words: str
    is_valid: Callable[[Any], ArrayLike]
    is_static: bool = False

    def of_rows(self, x: Any) -> tuple[str, Any]:
        """The words, and which rows of an array ``[n, …]`` satisfy the condition, ``[n]``."""
        valid: Any = self.is_valid(x)
        return self.words, valid.all(axis=tuple(range(1, valid.ndim))) if valid.ndim > 1 else valid


FINITE = Constraint("finite", is_finite)
POSITIVE = Constraint("positive and finite", lambda x: (x > 0) & is_finite(x))
NONNEGATIVE = Constraint("nonnegative and finite", is_nonnegative)
PROBABILITY = Constraint("in [0, 1]", lambda x: (x >= 0) & (x <= 1))


def scalar_or_nan(constraint: Constraint, x: ArrayLike, name: str) -> jax.Array:
    """`valid_or_nan` of one number; a ValueError for an array with axes."""
    if jnp.ndim(x) > 0:
        raise ValueError(f"{name} must be a scalar, got shape {list(jnp.shape(x))}.")
    return valid_or_nan(constraint, x, name)


def valid_or_nan(constraint: Constraint, x: ArrayLike, name: str) -> jax.Array:
    """x where it is valid, else NaN: an invalid number must poison the result.

    A number that can be checked is a ValueError instead: as a constant in compiled code, XLA turns
    exp(-nan x) on CPUs into any number.
    """
    if not is_traced(x):
        check_values(name, x, constraint.words, constraint.is_valid(on_host(x)))
        return jnp.asarray(x)
    traced = jnp.asarray(x)
    return fast_where(jnp.asarray(constraint.is_valid(traced)), traced, jnp.nan)
