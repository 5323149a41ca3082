"""The shapes and the constraints of a batch of predictions, and valid numbers in masked rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._check import check_array, check_shapes
from calibjax._distribution import Distribution
from calibjax._sharding import Axis, all_of, all_sum, index_on
from calibjax._struct import is_array, widest_dtype

#: How far the sum of a row of probabilities may be from 1, and that of one with 16 bits.
TOLERANCE, TOLERANCE_OF_16_BITS = 1e-3, 1e-2


def predictions_sizes(
    predictions: Any, where: Any, name: str = "predictions", at_least: int = 2
) -> dict[str, int]:
    """The size of each axis that the family names, "n" for that of rows; checks types and shapes.

    `name` is what errors call the predictions, which must have so many rows at least.
    """
    if not isinstance(predictions, Distribution):
        actual = "an array" if is_array(predictions) else type(predictions).__name__
        raise TypeError(
            f"{name} must be a distribution of calibjax, such as Categorical(probs), got {actual}; "
            "as_predictions converts those of numpyro, distrax, TFP and scipy.stats."
        )
    arrays = parameters(predictions, "" if name == "predictions" else f" of {name}")
    if where is not None:
        check_array("where", where, "boolean")
        arrays["where"] = where, "n"
    family = type(predictions).__name__
    sizes = check_shapes(
        arrays,
        one_axis_more=f"; K models for each target are Mixture.ensemble({family}(…)) of arrays "
        "[n, K, …], which jnp.moveaxis(array, 0, 1) makes of [K, n, …]",
        one_axis_less=predictions.one_axis_less,
    )
    if sizes["n"] < at_least:
        rows = "row" if at_least == 1 else "rows"
        raise ValueError(f"{name} must hold at least {at_least} {rows}, got {sizes['n']}.")
    return sizes


def parameters(predictions: Distribution, of_batch: str = "") -> dict[str, tuple[Any, str]]:
    """Each parameter with its symbolic shape; TypeError if it is no array of real numbers."""
    arrays = {
        f"{name}{of_batch}": (predictions.parameter(name), axes)
        for name, axes in predictions.shapes.items()
    }
    for name, (value, _) in arrays.items():
        check_array(name, value, "real")
    return arrays


def valid_rows(predictions: Distribution) -> jax.Array:
    """Which rows satisfy all constraints of their family, ``[n]``."""
    return jnp.all(jnp.stack([valid for _, valid in predictions.constraints().values()]), axis=0)


def probability_vectors(weights: jax.Array) -> tuple[str, jax.Array]:
    """What a row of probabilities must be, in words, and which rows satisfy it, ``[n]``."""
    # A 16-bit softmax rounds each entry to 3 digits, and its rows sum to 1 within some 2e-3.  They
    # are also valid as 32 bits: a row is known by its entries, of at most 11 binary digits.
    shown = TOLERANCE_OF_16_BITS if weights.dtype.itemsize == 2 else TOLERANCE
    weights = weights.astype(widest_dtype(weights))
    off = abs(weights.sum(axis=-1) - 1)
    rounded = _has_few_digits(weights).all(axis=-1)
    sums_to_one = (off <= TOLERANCE) | (rounded & (off <= TOLERANCE_OF_16_BITS))
    valid = (weights >= 0).all(axis=-1) & sums_to_one
    return f"nonnegative with rows that sum to one within {shown:g}", valid


def _has_few_digits(x: Any) -> Any:
    """Whether x, an array of NumPy or of jax, has at most 11 binary digits."""
    if isinstance(x, np.ndarray):
        mantissa = np.frexp(x)[0] * 2**11
        return mantissa == np.floor(mantissa)
    return lax.reduce_precision(x, exponent_bits=8, mantissa_bits=10) == x


def widened_integers(targets: jax.Array) -> jax.Array:
    """Booleans and small integers as int32, which also holds the numbers they are compared with."""
    return targets.astype(jnp.int32) if targets.dtype.itemsize < 4 else targets


def fill_masked(rows: Any, where: jax.Array, axis: Axis = None) -> Any:
    """Replaces masked rows by a copy of the first kept row, or by ones if no row is kept.

    A masked row may hold anything.  Its replacement is valid and passes no gradient on.  The first
    kept row may lie on another device than `rows`.
    """
    first = jnp.argmax(where)
    on_device = all_of(where[first], axis)
    is_here = where[first] & (jnp.argmax(on_device).astype(jnp.int32) == index_on(axis))

    def fill(x: jax.Array) -> jax.Array:
        own = lax.stop_gradient(x[first])
        row = all_sum(jnp.where(is_here, own, jnp.zeros_like(own)), axis)
        row = jnp.where(jnp.any(on_device), row, 1).astype(x.dtype)
        return jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, row[None])

    return jax.tree.map(fill, rows)


def kept_first(rows: Any, where: Any) -> tuple[Any, jax.Array | int]:
    """The rows in a new order, kept rows first, and the number of kept rows."""
    if where is None:
        return rows, jax.tree.leaves(rows)[0].shape[0]
    order = jnp.argsort(~where, stable=True)
    return jax.tree.map(lambda x: x[order], rows), jnp.sum(where, dtype=jnp.int32)
