"""Predictions and targets that are checked, and cleaned before they are used.

`clean` runs inside of jit.  It returns `Data` of one floating dtype with valid numbers in masked
rows and a weight for each row.  If a kept row is invalid, which only a traced value can be at this
point, all weights are NaN, and so is every result computed from them.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._between import conditions
from calibjax._distribution import Distribution
from calibjax._numbers import fractions_of, is_nonnegative
from calibjax._sharding import Axis, all_max, all_of, all_sum, index_on
from calibjax._struct import is_floating, is_traced, on_host, static, struct, widest_dtype

T = TypeVar("T")

#: An array with a row for each sample, or None; targets may be `Between`.  The type does not say
#: which: `clean` makes weights of None, and a public function refuses intervals before its core.
PerRow = Any


@struct
class Covariates:
    """d columns of what is known of each row beside its prediction.

    Args:
        values: numbers, or numbers of categories, ``[n, d]``.
        names: of the columns.
        sizes: how many categories each column has, and 0 if it holds numbers.
    """

    values: jax.Array
    names: tuple[str, ...] = static()
    sizes: tuple[int, ...] = static()


@struct
class Data:
    """n samples, each a prediction and a target.

    Args:
        predictions: a batch of n predictions.
        targets: ``[n]`` or ``[n, d]``, or `Between`.
        where: which rows count, ``[n]``, or None if all do.
        weights: how much each row counts, ``[n]``; `check_data` sets None if all count 1.
        clusters: numbers of clusters, ``[n]``: rows of one may depend on each other; or None.
        times: times in units of the horizon, ``[n]``: rows less than 1 apart may depend on each
            other; or None.
        covariates: what else is known of each row, or None.
    """

    predictions: Distribution
    targets: PerRow
    where: PerRow = None
    weights: PerRow = None
    clusters: PerRow = None
    times: PerRow = None
    covariates: Covariates | None = None

    @property
    def n(self) -> int:
        """The number of rows, masked ones included."""
        rows = self.predictions if self.targets is None else self.targets
        return jax.tree.leaves(rows)[0].shape[0]

    @property
    def samples(self) -> tuple[Any, PerRow]:
        """The batch of samples (predictions, targets), the argument of `h_tile`."""
        return self.predictions, self.targets

    def n_kept(self) -> int:
        """The number of kept rows, or n if the mask is traced."""
        if self.where is None or is_traced(self.where):
            return self.n
        return int(np.sum(np.asarray(self.where)))

    def n_counted(self) -> int:
        """The number of kept rows whose weight is not 0, or n if that is traced."""
        if self.weights is None or is_traced((self.where, self.weights)):
            return self.n_kept()
        kept = True if self.where is None else np.asarray(self.where)
        return int(np.sum((np.asarray(self.weights) > 0) & kept))

    def valid(self) -> jax.Array:
        """Which rows have valid predictions, and targets and weights if there are any, ``[n]``."""
        valid = valid_rows(self.predictions)
        if self.targets is not None:
            for *_, possible in conditions(self.predictions, self.targets):
                valid = valid & possible
        if self.times is not None:
            valid = valid & jnp.isfinite(self.times)
        if self.covariates is not None:
            valid = valid & ~jnp.any(jnp.isnan(self.covariates.values), axis=1)
        return valid if self.weights is None else valid & is_nonnegative(self.weights)


def counted_rows(data: Data) -> np.ndarray:
    """Which rows are kept and have a weight above 0, ``[n]``, as far as that is known."""
    counted = np.ones(data.n, bool)
    if data.where is not None and not is_traced(data.where):
        counted &= on_host(data.where)
    if data.weights is not None and not is_traced(data.weights):
        counted &= on_host(data.weights) > 0
    return counted


def valid_rows(predictions: Distribution) -> jax.Array:
    """Which rows satisfy all constraints of their family, ``[n]``."""
    return jnp.all(jnp.stack([valid for _, valid in predictions.constraints().values()]), axis=0)


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
    return jax.tree.map(lambda x: x[order], rows), jnp.sum(where, dtype=jnp.int32)


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
    return Data(predictions, targets, data.where, weights, *others)


def clean_kept_first(data: Data, axis: Axis) -> tuple[Data, jax.Array | int]:
    """The clean data, kept rows first, and how many of the rows of this device are kept.

    All weights are NaN if fewer than two rows of all devices are: one row alone gives 0 / 0.
    """
    data, n_kept = kept_first(clean(data, axis), data.where)
    enough = all_sum(jnp.asarray(n_kept), axis) > 1
    weights = jnp.where(enough, data.weights, jnp.nan)
    return dataclasses.replace(data, where=None, weights=weights), n_kept


def in_dtype(tree: T, dtype: DTypeLike) -> T:
    """The tree with all floating leaves in one dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if is_floating(x) else x, tree)
