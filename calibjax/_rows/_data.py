"""Predictions and targets: checked when the user passes them, cleaned before they are used.

`check_data` runs outside of jit and puts the user's arguments into `Data`.  It always checks shapes
and dtypes, and it checks values where they are concrete.  `padded` puts `Data` on the ladder of
numbers of rows.  `clean` runs inside of jit.  It returns `Data` of one floating dtype with valid
numbers in masked rows and a weight for each row.  If a kept row is invalid, which only a traced
value can be at this point, all weights are NaN, and so is every result computed from them.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_array, check_shapes, check_values
from calibjax._distribution import Distribution
from calibjax._numbers import fractions_of, is_nonnegative
from calibjax._parameters import family_name
from calibjax._rows._ladder import LARGEST_RUNG, filled_up, rows_on_host, rung
from calibjax._rows._predictions import check_predictions, fill_masked, valid_rows
from calibjax._sharding import Axis, all_max, all_sum, devices_of, on_devices
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


def count_kept(n: int, where: Any) -> int:
    """The number of kept rows, or n if the mask is traced."""
    if where is None or is_traced(where):
        return n
    return int(np.sum(np.asarray(where)))


def check_data(
    predictions: Distribution,
    targets: ArrayLike,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    at_least: int = 2,
) -> Data:
    """The arguments as `Data`; a ValueError or TypeError names an argument that is wrong.

    At least `at_least` rows must be kept.
    """
    sizes = check_predictions(predictions, where, at_least=at_least)
    data = Data(predictions, targets, where, weights)
    check_array("targets", targets, predictions.target_kind)
    check_shapes({"targets": (targets, predictions.target_shape)}, sizes)
    if weights is not None:
        check_array("weights", weights, "real")
        check_shapes({"weights": (weights, "n")}, sizes)
    _check_kept_values(data, at_least)
    return data


def _check_kept_values(data: Data, at_least: int) -> None:
    """Checks the targets and weights of kept rows, each of them only if it is concrete."""
    if is_traced(data.where):
        return
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        if devices_of(data) and not is_traced(data) and _are_valid(None, data, at_least):
            return
        n, data = data.n, rows_on_host(data)
        kept = np.ones(data.n, bool) if data.where is None else data.where
        if not is_traced(data.targets):
            words, valid = data.predictions.supports(data.targets)
            # The support of some families depends on their parameters.
            if not is_traced(valid):
                check_values("targets", data.targets, words, np.asarray(valid) | ~kept)
        if data.weights is not None and not is_traced(data.weights):
            words, valid = _weights_constraint(data.weights)
            check_values("weights", data.weights, words, valid | ~kept)
            kept = kept & (data.weights > 0)
        n_kept = int(kept[:n].sum())
        if n_kept < at_least and not is_traced(data.weights):
            raise ValueError(f"where and weights must keep at least {at_least} rows, got {n_kept}.")


@on_devices
def _are_valid(axis: Axis, _: None, data: Data, at_least: int) -> jax.Array:
    """Whether targets and weights of all kept rows are valid, where the rows lie."""
    valid = _valid_targets_and_weights(data)
    counted = valid if data.weights is None else valid & (data.weights > 0)
    if data.where is not None:
        valid, counted = valid | ~data.where, counted & data.where
    n_bad, n_counted = all_sum((jnp.sum(~valid), jnp.sum(counted)), axis)
    return (n_bad == 0) & (n_counted >= at_least)


def _valid_targets_and_weights(data: Data) -> jax.Array:
    valid = data.predictions.supports(data.targets)[1]
    return valid if data.weights is None else valid & _weights_constraint(data.weights)[1]


def _weights_constraint(weights: Any) -> tuple[str, Any]:
    return "nonnegative and finite", is_nonnegative(weights)


def check_rows(predictions: Distribution, where: ArrayLike | None) -> Data:
    """Checked predictions without targets, on the ladder."""
    check_predictions(predictions, where)
    return padded(Data(predictions, None, where))


def check_locations(
    predictions: Distribution, at_predictions: Distribution, at_targets: ArrayLike, prefix: str
) -> Data:
    """The locations of a witness function as `Data`; `predictions` must be checked already."""
    name, targets_name = f"{prefix}_predictions", f"{prefix}_targets"
    sizes = check_predictions(at_predictions, name=name, at_least=1)
    if family_name(at_predictions) != family_name(predictions):
        raise TypeError(
            f"{name} must be of the family of predictions, {family_name(predictions)}, got "
            f"{family_name(at_predictions)}."
        )
    ours, theirs = (
        [x.shape[1:] for x in jax.tree.leaves(p)] for p in (predictions, at_predictions)
    )
    if ours != theirs:
        raise ValueError(
            f"{name} must have the shapes of predictions, but for the leading axis, "
            f"{list(map(list, ours))}, got {list(map(list, theirs))}."
        )
    check_array(targets_name, at_targets, predictions.target_kind)
    check_shapes({targets_name: (at_targets, predictions.target_shape)}, sizes)
    if not is_traced((at_predictions, at_targets)):
        with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
            at = rows_on_host(Data(at_predictions, at_targets))
            check_values(targets_name, at.targets, *at.predictions.supports(at.targets))
    return Data(at_predictions, at_targets)


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
    valid = valid_rows(data.predictions) & _valid_targets_and_weights(data)
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
