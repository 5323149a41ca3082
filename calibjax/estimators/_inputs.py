"""What the user passed, checked.

Every public estimator and test calls `check_inputs` first, outside of its jit: shapes and dtypes
are checked always, values where they are concrete.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax._check import check_array, check_shapes, check_values
from calibjax._sharding import Axis, all_sum, on_devices, on_one_device
from calibjax._struct import is_traced, widest_dtype
from calibjax.discrepancy import h
from calibjax.distributions import check_predictions
from calibjax.estimators._rows import valid_targets_and_weights, weights_constraint
from calibjax.kernels import check_formula, check_kernel


class Inputs(NamedTuple):
    """The arguments that all estimators and tests share."""

    kernel: Any
    predictions: Any
    targets: Any
    where: Any = None
    weights: Any = None


def check_inputs(inputs: Inputs, formula: Callable[..., jax.Array] = h) -> int:
    """Raises a ValueError or TypeError that names the argument; returns n.

    `formula` is the function of (kernel, sample, sample) that will be evaluated.
    """
    n = check_samples(*inputs[1:])
    check_kernel(inputs.kernel)
    _check_formula(inputs, formula)
    return n


def check_samples(predictions: Any, targets: Any, where: Any = None, weights: Any = None) -> int:
    """The same for predictions and targets alone."""
    sizes = check_predictions(predictions, where)
    check_array("targets", targets, predictions.target_kind)
    check_shapes({"targets": (targets, predictions.target_shape)}, sizes)
    if weights is not None:
        check_array("weights", weights, "real")
        check_shapes({"weights": (weights, "n")}, sizes)
    _check_rows(predictions, targets, where, weights)
    return sizes["n"]


def check_locations(
    predictions: Any, at_predictions: Any, at_targets: Any, prefix: str = "at"
) -> int:
    """Checks the locations of witness functions against checked predictions; returns J."""
    name, targets_name = f"{prefix}_predictions", f"{prefix}_targets"
    sizes = check_predictions(at_predictions, name=name, at_least=1)
    if _family(at_predictions) != _family(predictions):
        raise TypeError(
            f"{name} must be of the family of predictions, {_family(predictions)}, got "
            f"{_family(at_predictions)}."
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
        with jax.ensure_compile_time_eval():
            words, valid = at_predictions.supports(jnp.asarray(at_targets))
            check_values(targets_name, at_targets, words, valid)
    return sizes["n"]


def _family(predictions: Any) -> str:
    """The family of predictions, and that of their components."""
    name = type(predictions).__name__
    components = getattr(predictions, "components", None)
    return name if components is None else f"{name}({_family(components)})"


def count_kept(n: int, where: Any) -> int:
    """How many rows are not masked; all n where they cannot be counted."""
    if where is None or is_traced(where):
        return n
    with jax.ensure_compile_time_eval():
        return int(jnp.sum(jnp.asarray(where)))


def _check_formula(inputs: Inputs, formula: Callable[..., jax.Array]) -> None:
    # As `clean` will make them.
    dtype = widest_dtype(inputs.targets, *jax.tree.leaves(inputs.predictions))
    kind = dtype if inputs.predictions.target_kind == "real" else jnp.int32
    prediction = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], dtype), inputs.predictions
    )
    target = jax.ShapeDtypeStruct(inputs.targets.shape[1:], kind)
    check_formula(inputs.kernel, prediction, target, formula)


def _check_rows(predictions: Any, targets: Any, where: Any, weights: Any) -> None:
    """Looks at all targets and weights of rows that are concrete and not masked."""
    if is_traced(where):
        return
    with jax.ensure_compile_time_eval():
        rows = predictions, targets, where, weights
        if not is_traced(rows) and _rows_hold(None, rows):
            return
        predictions, targets, where, weights = on_one_device(rows)
        kept = jnp.ones(targets.shape[0], bool) if where is None else jnp.asarray(where)
        if not is_traced(targets):
            words, valid = predictions.supports(jnp.asarray(targets))
            check_values("targets", targets, words, valid | ~kept)
        if weights is not None and not is_traced(weights):
            words, valid = weights_constraint(jnp.asarray(weights))
            check_values("weights", weights, words, valid | ~kept)
            kept = kept & (jnp.asarray(weights) > 0)
        n_kept = int(jnp.sum(kept))
        if n_kept < 2 and not is_traced(weights):
            raise ValueError(f"where and weights must keep at least 2 rows, got {n_kept}.")


@on_devices
def _rows_hold(axis: Axis, _: None, rows: Any) -> jax.Array:
    # In one compiled call, as the checks of predictions are.
    predictions, targets, where, weights = rows
    valid = valid_targets_and_weights(predictions, targets, weights)
    counted = valid if weights is None else valid & (weights > 0)
    if where is not None:
        valid, counted = valid | ~where, counted & where
    n_bad, n_counted = all_sum((jnp.sum(~valid), jnp.sum(counted)), axis)
    return (n_bad == 0) & (n_counted >= 2)
