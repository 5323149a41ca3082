"""Rows from the user, checked once.

Shapes and dtypes are always checked, and values where they are concrete: in NumPy, which compiles
nothing, or where the rows lie, if they lie on several devices.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._between import Between, Targets
from calibjax._check import check_array, check_shapes
from calibjax._distribution import Distribution
from calibjax._parameters import family_name, row_shapes
from calibjax._rows._data import Data
from calibjax._rows._digits import compared_in_one_precision
from calibjax._rows._ladder import padded
from calibjax._rows._values import check_values_of_rows
from calibjax._struct import is_array


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


def predictions_sizes(
    predictions: Distribution, where: ArrayLike | None, name: str = "predictions", at_least: int = 2
) -> dict[str, int]:
    """The size of each axis that the family names, "n" for that of rows; checks types and shapes.

    `name` is what errors call the predictions, which must have so many rows at least.
    """
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
        rows = "row" if at_least == 1 else "rows"
        raise ValueError(f"{name} must hold at least {at_least} {rows}, got {sizes['n']}.")
    return sizes


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


def check_data(
    predictions: Distribution,
    targets: Targets,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    at_least: int = 2,
    intervals: bool = False,
) -> Data:
    """The arguments as `Data`; a ValueError or TypeError names an argument that is wrong.

    At least `at_least` rows must be kept.  With `intervals` targets may be `Between`.  Targets are
    in one precision with the parameters that they are compared with.
    """
    sizes = predictions_sizes(predictions, where, at_least=at_least)
    if isinstance(targets, Between):
        targets = _check_intervals(predictions, targets, sizes, intervals)
    else:
        check_dtype_of_targets("targets", targets, predictions)
        check_shapes({"targets": (targets, predictions.target_shape)}, sizes)
    if weights is not None:
        check_array("weights", weights, "real")
        check_shapes({"weights": (weights, "n")}, sizes)
    data = compared_in_one_precision(Data(predictions.keeping_digits(), targets, where, weights))
    check_values_of_rows(data, at_least)
    return data


def _check_intervals(
    predictions: Distribution, targets: Between, sizes: dict[str, int], intervals: bool
) -> Between:
    """Intervals with ends of the right shapes, in one dtype."""
    if not intervals:
        raise TypeError(
            "targets must be an array, got Between; intervals are for log_score, pit_interval, "
            "pit_curve, risk_curve, d_calibration, integrated_calibration_index, evaluate, skce, "
            "h_matrix, contributions, witness, ucme, random_feature_skce, SKCEState, "
            "skce_confidence_interval, compare_calibration, calibration_test and the other tests "
            "of the SKCE that draw no targets, and CalibrationMonitor."
        )
    if not predictions.takes_intervals:
        raise TypeError(
            "targets must be an array, got Between: it is for predictions of one number whose cdf "
            f"is known everywhere, got {family_name(predictions)}."
        )
    ends = {"low of targets": targets.low, "high of targets": targets.high}
    if targets.censored_at is not None:
        ends["censored_at of targets"] = targets.censored_at
    for name, end in ends.items():
        check_array(name, end, "real")
    check_shapes({name: (end, "n") for name, end in ends.items()}, sizes)
    return targets.in_one_dtype()


def check_predictions(
    predictions: Distribution,
    where: ArrayLike | None = None,
    name: str = "predictions",
    at_least: int = 2,
) -> dict[str, int]:
    """The size of each axis that the family names; an error says what is wrong with predictions."""
    sizes = predictions_sizes(predictions, where, name, at_least)
    check_values_of_rows(
        Data(predictions, None, where), 0, "" if name == "predictions" else f" of {name}"
    )
    return sizes


def check_rows(predictions: Distribution, where: ArrayLike | None) -> Data:
    """Checked predictions without targets, on the ladder."""
    check_predictions(predictions, where)
    return padded(Data(predictions, None, where))


def check_locations(
    predictions: Distribution, at_predictions: Distribution, at_targets: ArrayLike, prefix: str
) -> Data:
    """The locations of a witness function as `Data`; `predictions` must be checked already."""
    name, targets_name = f"{prefix}_predictions", f"{prefix}_targets"
    sizes = predictions_sizes(at_predictions, None, name, at_least=1)
    if family_name(at_predictions) != family_name(predictions):
        raise TypeError(
            f"{name} must be of the family of predictions, {family_name(predictions)}, got "
            f"{family_name(at_predictions)}."
        )
    ours, theirs = (row_shapes(p.without_marks()) for p in (predictions, at_predictions))
    if ours != theirs:
        raise ValueError(
            f"{name} must have the shapes of predictions, but for the leading axis, {ours}, got "
            f"{theirs}."
        )
    check_dtype_of_targets(targets_name, at_targets, predictions)
    check_shapes({targets_name: (at_targets, predictions.target_shape)}, sizes)
    data = compared_in_one_precision(Data(at_predictions, at_targets))
    check_values_of_rows(data, 0, f" of {name}", targets_name)
    return data
