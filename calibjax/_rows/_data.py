"""Predictions and targets that are checked: on the ladder, and cleaned before they are used.

`padded` puts `Data` on the ladder of numbers of rows.  `clean` runs inside of jit.  It returns
`Data` of one floating dtype with valid numbers in masked rows and a weight for each row.  If a kept
row is invalid, which only a traced value can be at this point, all weights are NaN, and so is every
result computed from them.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._numbers import fractions_of, is_nonnegative
from calibjax._rows._ladder import LARGEST_RUNG, filled_up, rung
from calibjax._rows._predictions import fill_masked, valid_rows
from calibjax._sharding import Axis, all_max, devices_of
from calibjax._struct import is_floating, is_traced, on_host, struct, widest_dtype

T = TypeVar("T")


@struct
class Data:
    """n samples, each a prediction and a target.

    Args:
        predictions: a batch of n predictions.
        targets: ``[n]`` or ``[n, d]``.
        where: which rows count, ``[n]``, or None if all do.
        weights: how much each row counts, ``[n]``; `check_data` sets None if all count 1.
    """

    predictions: Any
    targets: Any
    where: Any = None
    weights: Any = None

    @property
    def n(self) -> int:
        """The number of rows, masked ones included."""
        rows = self.predictions if self.targets is None else self.targets
        return jax.tree.leaves(rows)[0].shape[0]

    @property
    def samples(self) -> tuple[Any, jax.Array]:
        """The batch of samples (predictions, targets), the argument of `h_tile`."""
        return self.predictions, self.targets

    def n_kept(self) -> int:
        """The number of kept rows, or n if the mask is traced."""
        return count_kept(self.n, self.where)

    def valid(self) -> jax.Array:
        """Which rows have valid predictions, and targets and weights if there are any, ``[n]``."""
        valid = valid_rows(self.predictions)
        if self.targets is not None:
            valid = valid & self.predictions.supports(self.targets)[1]
        return valid if self.weights is None else valid & is_nonnegative(self.weights)


def count_kept(n: int, where: Any) -> int:
    """The number of kept rows, or n if the mask is traced."""
    if where is None or is_traced(where):
        return n
    return int(np.sum(np.asarray(where)))


def padded(data: Data) -> Data:
    """The data with masked rows behind the others, up to the next rung; `where` is an array then.

    Traced rows, rows on several devices, and more than 2^14 rows are returned as they are.  The
    rows that are added are copies of the last one.
    """
    if data.n > LARGEST_RUNG or is_traced(data) or devices_of(data):
        return data
    where = np.zeros(rung(data.n), bool)
    where[: data.n] = True if data.where is None else data.where
    mask = jax.device_put(where)
    if is_traced(mask):  # Nothing changes inside of a user's jit, where data may be constants.
        return data

    def fill(x: Any) -> jax.Array:
        with np.errstate(over="ignore"):  # Masked rows may hold anything.
            rows = filled_up(on_host(x))
        is_placed = isinstance(x, jax.Array) and x.committed
        return jax.device_put(rows, x.sharding if is_placed else None)

    data = Data(data.predictions, data.targets, weights=data.weights)
    return dataclasses.replace(jax.tree.map(fill, data), where=mask)


def clean(data: Data, axis: Axis = None) -> Data:
    """The data in the widest floating dtype of their arrays, at least float32, ready for use.

    Masked rows hold a copy of the first kept row and have weight 0.  Weights are divided by the
    largest one: a common factor cancels in every estimate, and squares of weights must not
    overflow.  If a kept row is invalid, all weights are NaN.
    """
    valid = data.valid()
    dtype = widest_dtype(data.targets, *jax.tree.leaves(data.predictions))
    predictions = jax.tree.map(lambda x: x.astype(dtype), data.predictions)
    targets = data.targets.astype(dtype if predictions.target_kind == "real" else jnp.int32)
    weights = jnp.ones(valid.shape, dtype) if data.weights is None else data.weights.astype(dtype)
    if data.where is not None:
        valid = valid | ~data.where
        predictions, targets = fill_masked((predictions, targets), data.where, axis)
        weights = jnp.where(data.where, weights, 0.0)
    if data.weights is not None:
        largest = all_max(jnp.max(weights), axis)
        weights = fractions_of(jnp.where(largest > 0, largest, 1.0), weights)
    weights = weights * jnp.where(jnp.all(valid), 1.0, jnp.nan)
    return Data(predictions, targets, data.where, weights)


def in_dtype(tree: T, dtype: Any) -> T:
    """The tree with all floating leaves in one dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_floating(x) else x, tree)
