"""Data cleaned before they are used, inside of jit.

`clean` returns `Data` of one floating dtype with valid numbers in masked rows and a weight for each
row.  If a kept row is invalid, which only a traced value can be at this point, all weights are NaN,
and so is every result computed from them.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import Axis, all_max, all_of, all_sum, index_on
from calibjax._base.struct import indexed, is_floating, widest_dtype
from calibjax._data._data import Data
from calibjax._numbers import fractions_of

T = TypeVar("T")


def fill_masked(rows: T, where: jax.Array, axis: Axis = None) -> T:
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


def kept_first(rows: T, where: jax.Array | None) -> tuple[T, jax.Array | int]:
    """The rows in a new order, kept rows first, and the number of kept rows."""
    if where is None:
        return rows, jax.tree.leaves(rows)[0].shape[0]
    order = jnp.argsort(~where, stable=True)
    return indexed(rows, order), jnp.sum(where, dtype=jnp.int32)


def clean(data: Data, axis: Axis = None) -> Data:
    """The data in the widest floating dtype of their arrays, at least float32, ready for use.

    Masked rows hold a copy of the first kept row and have weight 0.  Weights are divided by the
    largest one: a common factor cancels in every estimate, and squares of weights must not
    overflow.  If a kept row is invalid, all weights are NaN.
    """
    valid = data.valid()
    dtype = widest_dtype(*jax.tree.leaves((data.targets, data.predictions)))
    predictions = jax.tree.map(lambda x: x.astype(dtype), data.predictions)
    is_real = predictions.target_kind == "real"
    targets = jax.tree.map(
        # Open ends of counts are infinite.
        lambda x: x.astype(dtype if is_real or is_floating(x) else jnp.int32),
        data.targets,
    )
    weights = jnp.ones(valid.shape, dtype) if data.weights is None else data.weights.astype(dtype)
    others = data.clusters, data.times, data.covariates
    if data.where is not None:
        valid = valid | ~data.where
        rows = predictions, targets, others
        predictions, targets, others = fill_masked(rows, data.where, axis)
        weights = jnp.where(data.where, weights, 0.0)
    if data.weights is not None:
        largest = all_max(jnp.max(weights), axis)
        weights = fractions_of(jnp.where(largest > 0, largest, 1.0), weights)
    weights = weights * jnp.where(jnp.all(valid), 1.0, jnp.nan)
    clusters, times, covariates = others
    return data.replace(
        predictions=predictions,
        targets=targets,
        weights=weights,
        clusters=clusters,
        times=times,
        covariates=covariates,
    )


def clean_kept_first(data: Data, axis: Axis) -> tuple[Data, jax.Array | int]:
    """The clean data, kept rows first, and how many of the rows of this device are kept.

    All weights are NaN if fewer than two rows of all devices are: one row alone gives 0 / 0.
    """
    data, n_kept = kept_first(clean(data, axis), data.where)
    enough = all_sum(jnp.asarray(n_kept), axis) > 1
    weights = jnp.where(enough, data.weights, jnp.nan)
    return data.replace(where=None, weights=weights), n_kept


def in_dtype(tree: T, dtype: DTypeLike) -> T:
    """The tree with all floating leaves in one dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_floating(x) else x, tree)
