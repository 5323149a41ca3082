"""Checks of a batch of predictions from the user, and valid numbers for its masked rows."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._check import check_array, check_shapes, check_values
from calibjax._distribution import Distribution
from calibjax._sharding import Axis, all_of, all_sum, index_on, on_devices, on_one_device
from calibjax._struct import is_array, is_traced, widened

# How far the sum of a row of probabilities may be from 1.
_OF_32_BITS, _OF_16_BITS = 1e-3, 1e-2


def check_predictions(
    predictions: Any, where: Any = None, name: str = "predictions", at_least: int = 2
) -> dict[str, int]:
    """Checks the type and the shapes, and the values of kept rows where they are concrete.

    Returns the size of each axis that the family names; "n" is the number of rows.
    """
    if not isinstance(predictions, Distribution):
        actual = "an array" if is_array(predictions) else type(predictions).__name__
        raise TypeError(
            f"{name} must be a distribution of calibjax, such as Categorical(probs), got {actual}; "
            "as_predictions converts those of numpyro, distrax, TFP and scipy.stats."
        )
    of_batch = "" if name == "predictions" else f" of {name}"
    arrays = parameters(predictions, of_batch)
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
    if not is_traced((predictions, where)):
        with jax.ensure_compile_time_eval():
            if _kept_rows_are_valid(None, (predictions, where)):
                return sizes
            predictions, where = on_one_device((predictions, where))
            for parameter, (words, valid) in predictions.constraints().items():
                valid = valid if where is None else valid | ~jnp.asarray(where)
                value = predictions.parameter(parameter)
                check_values(f"{parameter}{of_batch}", value, words, valid)
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


@on_devices
def _kept_rows_are_valid(axis: Axis, _: None, rows: Any) -> jax.Array:
    # One compiled call makes the checks of valid input, the usual case, cheap.
    predictions, where = rows
    bad = ~valid_rows(predictions)
    return all_sum(jnp.sum(bad if where is None else bad & where), axis) == 0


def valid_rows(predictions: Distribution) -> jax.Array:
    """Which rows satisfy all constraints of their family, ``[n]``."""
    return jnp.all(jnp.stack([valid for _, valid in predictions.constraints().values()]), axis=0)


def probability_vectors(weights: jax.Array) -> tuple[str, jax.Array]:
    """What a row of probabilities must be, in words, and which rows satisfy it, ``[n]``."""
    # A 16-bit softmax rounds each entry to 3 digits, and its rows sum to 1 within some 2e-3.  They
    # are also valid as 32 bits: a row is known by its entries, of at most 11 binary digits.
    shown = _OF_16_BITS if weights.dtype.itemsize == 2 else _OF_32_BITS
    weights = widened(weights)
    rounded = lax.reduce_precision(weights, exponent_bits=8, mantissa_bits=10)
    tolerance = jnp.where(jnp.all(rounded == weights, axis=-1), _OF_16_BITS, _OF_32_BITS)
    sums_to_one = jnp.abs(jnp.sum(weights, axis=-1) - 1) <= tolerance
    valid = jnp.all(weights >= 0, axis=-1) & sums_to_one
    return f"nonnegative with rows that sum to one within {shown:g}", valid


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
