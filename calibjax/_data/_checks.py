"""Checks of predictions, targets and what stands beside them, before `Data` are made of them.

Shapes and dtypes are always checked, and values where they are concrete: in NumPy, which compiles
nothing, or where the rows lie, if they lie on several devices.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_array, check_shapes, check_values
from calibjax._base.parameters import family_name
from calibjax._base.sharding import Axis, all_sum, devices_of, on_devices, on_one_device
from calibjax._base.struct import PyTree, is_array, is_traced, on_host
from calibjax._data._buckets import filled_up
from calibjax._data._dependence import kept_rows
from calibjax._data._distribution import Distribution
from calibjax._data._interval_censored import Between, Targets, conditions
from calibjax._data._precision import check_digits
from calibjax._numbers import is_nonnegative

#: Predictions, targets, mask and weights; each but the first may be None.
Rows = tuple[Distribution, PyTree, Any, Any]


def check_distribution(name: str, predictions: Any) -> None:
    """TypeError unless these are predictions; of an array it says which family it may be for."""
    if isinstance(predictions, Distribution):
        return
    actual, example = type(predictions).__name__, "Categorical(probs)"
    if is_array(predictions):
        shape = list(jnp.shape(predictions))
        actual = f"an array of shape {shape}"
        if len(shape) == 1:
            example = "Bernoulli(probs) of the probabilities of an event"
        elif shape[1:] == [1]:
            example = "Bernoulli(probs[:, 0]) of the probabilities of an event"
    raise TypeError(
        f"{name} must be a distribution of calibjax, such as {example}, got {actual}; "
        "as_predictions converts those of numpyro, distrax, TFP and scipy.stats."
    )


def check_shapes_of_predictions(
    predictions: Distribution, where: ArrayLike | None, name: str = "predictions", at_least: int = 2
) -> dict[str, int]:
    """The size of each axis that the family names, "n" for that of rows; checks types and shapes.

    `name` is what errors call the predictions, which must have so many rows at least.
    """
    if not isinstance(predictions, Distribution):
        check_distribution(name, predictions)
    of_batch = "" if name == "predictions" else f" of {name}"
    arrays: dict[str, tuple[ArrayLike, str]] = {**parameters(predictions, of_batch)}
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
        raise too_few_rows(name, sizes["n"], at_least)
    return sizes


def too_few_rows(name: str, n: int, at_least: int) -> ValueError:
    """The error where there must be so many rows at least."""
    rows = "row" if at_least == 1 else "rows"
    return ValueError(f"{name} must hold at least {at_least} {rows}, got {n}.")


def parameters(predictions: Distribution, of_batch: str = "") -> dict[str, tuple[jax.Array, str]]:
    """Each parameter with its symbolic shape; TypeError if it is no array of real numbers."""
    arrays: dict[str, tuple[jax.Array, str]] = {}
    for name, axes in predictions.shapes.items():
        value = predictions.parameter(name)
        check_array(f"{name}{of_batch}", value, "real")
        arrays[f"{name}{of_batch}"] = value, axes
    return arrays


def check_dtype_of_targets(name: str, targets: Targets, predictions: Distribution) -> None:
    """A TypeError unless targets are of the kind of predictions; booleans are of two labels."""
    check_array(name, targets, predictions.target_kind)
    if jnp.result_type(targets) != jnp.bool_ or predictions.is_binary:
        return
    n_labels = predictions.n_labels
    if n_labels is None or n_labels > 2:
        kind = "counts" if n_labels is None else f"labels 0 … {n_labels - 1}"
        raise TypeError(f"{name} must be {kind}, got booleans, which are targets of events.")


def check_shapes_of_targets(
    predictions: Distribution, targets: Targets, sizes: dict[str, int]
) -> Targets:
    """The targets, of the right types and shapes; ends of intervals in one dtype."""
    if not isinstance(targets, Between):
        check_dtype_of_targets("targets", targets, predictions)
        check_shapes({"targets": (targets, predictions.target_shape)}, sizes)
        return targets
    if not predictions.takes_intervals:
        raise TypeError(
            "targets must be an array, got Between: it is for predictions of one number whose cdf "
            f"is known everywhere, got {family_name(predictions)}."
        )
    ends = targets.named_ends()
    for name, end in ends.items():
        check_array(name, end, "real")
    check_shapes({name: (end, "n") for name, end in ends.items()}, sizes)
    return targets.in_one_dtype()


def check_values_of_rows(
    predictions: Distribution,
    targets: Any = None,
    where: Any = None,
    weights: Any = None,
    of_batch: str = "",
    targets_name: str = "targets",
) -> None:
    """Checks the values of kept rows, of each argument only if it is concrete."""
    if is_traced(where):
        return
    given = predictions, targets, where, weights
    with jax.ensure_compile_time_eval(), np.errstate(all="ignore"):
        rows = given
        if devices_of(given):
            if not is_traced(given) and _are_valid(None, given):
                return
            rows = on_one_device(given)
        rows = _on_host(rows)
        masked = False if rows[2] is None else ~rows[2]
        if not is_traced(rows[0]):
            for parameter, (words, valid) in rows[0].constraints().items():
                value = predictions.parameter(parameter)
                check_values(f"{parameter}{of_batch}", value, words, np.asarray(valid) | masked)
        if targets is not None and not is_traced(rows[1]):
            for name, value, words, valid in conditions(rows[0], rows[1], targets_name):
                # The support of some families depends on their parameters.
                if not is_traced(valid):
                    check_values(name, value, words, np.asarray(valid) | masked)
        if is_traced(weights):
            return
        if weights is not None:
            valid = is_nonnegative(rows[3]) | masked
            check_values("weights", weights, "nonnegative and finite", valid)
        is_real = predictions.target_kind == "real" and not predictions.score_only
        if is_real and isinstance(targets, np.ndarray | jax.Array) and not is_traced(targets):
            kept = kept_rows(targets.shape[0], *rows[2:])
            assert kept is not None  # Neither the mask nor weights are traced here.
            check_digits(predictions, targets, kept, of_batch, targets_name)


def _on_host(rows: Rows) -> Rows:
    """Rows as arrays of NumPy, filled up to the next bucket by copies of the last row.

    Checks of their values compile nothing, and what few families compile serves all numbers of rows
    of the bucket.  Tracers remain, and then nothing is filled up.
    """
    traced = is_traced(rows)

    def move(x: ArrayLike) -> ArrayLike:
        if is_traced(x):
            return x
        return on_host(x) if traced else filled_up(on_host(x))

    return jax.tree.map(move, rows)


def valid_rows(predictions: Distribution) -> jax.Array:
    """Which rows satisfy all constraints of their family, ``[n]``."""
    constraints = iter(predictions.constraints().values())
    valid = next(constraints)[1]
    for _, others in constraints:
        valid = valid & others
    return valid


def valid_samples(predictions: Distribution, targets: Any, weights: Any) -> jax.Array:
    """Which rows have valid predictions, and targets and weights if there are any, ``[n]``."""
    valid = valid_rows(predictions)
    if targets is not None:
        for *_, possible in conditions(predictions, targets):
            valid = valid & possible
    return valid if weights is None else valid & is_nonnegative(weights)


@on_devices
def _are_valid(axis: Axis, _: None, rows: Rows) -> jax.Array:
    """Whether all kept rows are valid."""
    predictions, targets, where, weights = rows
    valid = valid_samples(predictions, targets, weights)
    return all_sum(jnp.sum(~valid if where is None else ~valid & where), axis) == 0
