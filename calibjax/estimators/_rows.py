"""From what the user passed to what the formulas need: rows of one dtype, each with a weight.

`clean` brings everything to one floating dtype, puts a valid row in place of every masked one, and
makes the weights NaN where a value that could not be looked at turns out to be bad.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._batch import fill_masked, valid_rows
from calibjax._numerics import pairs_weight
from calibjax._sharding import Axis, all_of, all_sum, axis_size, index_on, rows_from_here
from calibjax._struct import is_floating, widest_dtype


class Rows(NamedTuple):
    """A clean batch of n samples: no masked row holds garbage, and each has a weight."""

    predictions: Any
    targets: jax.Array
    weights: jax.Array


def valid_targets_and_weights(predictions: Any, targets: Any, weights: Any) -> jax.Array:
    valid = predictions.supports(targets)[1]
    return valid if weights is None else valid & weights_constraint(weights)[1]


def weights_constraint(weights: jax.Array) -> tuple[str, jax.Array]:
    return "nonnegative and finite", (weights >= 0) & jnp.isfinite(weights)


def clean(
    kernel: Any,
    predictions: Any,
    targets: Any,
    where: Any = None,
    weights: Any = None,
    *,
    axis: Axis = None,
) -> tuple[Any, Rows]:
    """The kernel and the rows, of one floating dtype: the widest given, at least float32.

    Masked rows hold a copy of the first kept row, with weight 0.  If a kept row is invalid, which
    only inputs that could not be looked at can be, all weights are NaN, and so is what is made of
    them: value and gradient.
    """
    rows = clean_samples(predictions, targets, where, weights, axis)
    return in_dtype(kernel, rows.weights.dtype), rows


def in_dtype(tree: Any, dtype: Any) -> Any:
    """A kernel, predictions or rows with all floating leaves in one dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_floating(x) else x, tree)


def clean_samples(
    predictions: Any, targets: Any, where: Any = None, weights: Any = None, axis: Axis = None
) -> Rows:
    """The rows of `clean`."""
    valid = valid_rows(predictions) & valid_targets_and_weights(predictions, targets, weights)
    dtype = widest_dtype(targets, *jax.tree.leaves(predictions))
    predictions = jax.tree.map(lambda x: x.astype(dtype), predictions)
    targets = targets.astype(dtype if predictions.target_kind == "real" else jnp.int32)
    weights = jnp.ones(valid.shape, dtype) if weights is None else weights.astype(dtype)
    if where is not None:
        valid = valid | ~where
        predictions, targets = fill_masked((predictions, targets), where, axis)
        weights = jnp.where(where, weights, 0.0)
    return Rows(predictions, targets, weights * jnp.where(jnp.all(valid), 1.0, jnp.nan))


def all_pairs_weight(weights: jax.Array, axis: Axis) -> jax.Array:
    """sum_{i != j} w_i w_j over the rows of all devices."""
    within = all_sum(pairs_weight(weights), axis)
    return within + pairs_weight(all_of(jnp.sum(weights), axis))


def whole_blocks(rows: Rows, block_size: int, axis: Axis) -> Rows:
    """The rows of the complete blocks that begin on this device.

    Blocks are cut from the rows of all devices.  Their number is the same on each: those that there
    are none of have rows of weight 0.
    """
    n, n_devices = rows.weights.shape[0], axis_size(axis)
    if n_devices == 1 or n % block_size == 0:
        return jax.tree.map(lambda x: x[: n // block_size * block_size], rows)
    n_blocks = -(-n // block_size)
    size = n_blocks * block_size
    first = index_on(axis) * n
    # How far the first block begins behind the first row.
    offset = -first % block_size
    rows = jax.tree.map(lambda x: rows_from_here(x, size + block_size, axis), rows)
    rows = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, offset, size), rows)
    begins = offset + jnp.arange(n_blocks, dtype=jnp.int32) * block_size
    complete = (begins < n) & (first + begins + block_size <= n * n_devices)
    return rows._replace(weights=jnp.where(jnp.repeat(complete, block_size), rows.weights, 0.0))
