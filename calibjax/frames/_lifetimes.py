"""Survival curves and times of events as packages of survival analysis have them."""

from typing import Any

import numpy as np

from calibjax._base.sharding import on_one_device
from calibjax._base.struct import on_host
from calibjax._base.text import listed
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax._data.typed_column import check_same_order
from calibjax.distributions import SurvivalCurve, as_predictions, is_distribution
from calibjax.frames._array_conversion import as_numpy
from calibjax.frames._table import table_of_arrays

#: What an error says of arguments that seem to be in the other order.
IN_ORDER = "predictions come first, evaluate(predictions, targets)."


def read_lifetimes(predictions: Any, targets: object) -> tuple[Any, Any]:
    """A `SurvivalCurve` and `Between` of curves and of times with events; all else as it is.

    Args:
        predictions: step functions of scikit-survival, or with such targets a frame of curves whose
            index are times, as lifelines and pycox have it; or a distribution.
        targets: a structured array of events and times, as scikit-survival has it, or two columns
            of them; or `Between`, or times that are all of events.

    Raises:
        TypeError: curves are an array, which does not say the times, or stand for targets.
        ValueError: it is not clear which column says whether there was an event, or curves and
            targets have other rows.
    """
    if _are_functions(targets):
        raise TypeError(f"targets must hold times and events, got functions: {IN_ORDER}")
    if _are_functions(predictions):
        predictions = SurvivalCurve.from_curves(predictions)
    columns = _two_columns(targets)
    is_structured = getattr(getattr(targets, "dtype", None), "names", None) is not None
    if columns is None or isinstance(targets, Between):
        if isinstance(targets, Between) and _is_frame(predictions):
            predictions = _curves_of(predictions, len(targets.low))
        return predictions, targets
    if _is_frame(predictions):
        n = len(next(iter(columns.values())))
        if not is_structured and predictions.shape[1] == 2 != n:
            return predictions, targets  # of classes, and targets are not labels
        check_same_order(**{"predictions.T": predictions.T, "targets": targets})
        predictions = _curves_of(predictions, n)
    if is_structured and not isinstance(predictions, Distribution):
        raise TypeError(
            f"predictions must be survival curves for targets with events, got "
            f"{type(predictions).__name__}, which does not say the times: pass "
            "calibjax.SurvivalCurve(times, curves)."
        )
    if is_structured or isinstance(predictions, SurvivalCurve):
        targets = _with_events(columns)
    return predictions, targets


def read_intervals(predictions: object, targets: Between) -> tuple[Distribution, Between]:
    """Predictions that are a distribution, and both ends as arrays."""
    if not is_distribution(predictions):
        raise TypeError(
            "predictions must be a distribution for targets that are Between, such as "
            f"calibjax.Weibull(concentration, scale), got {type(predictions).__name__}."
        )
    predictions = on_one_device(as_predictions(predictions))
    if isinstance(predictions, Labels):
        raise TypeError(
            "targets must be an array, got Between: it is for predictions of numbers, got "
            f"{type(predictions).__name__} predictions of classes."
        )
    ends = (on_host(as_numpy(name, x)) for name, x in targets.named_ends().items())
    return predictions, Between(*ends)


def _are_functions(predictions: Any) -> bool:
    """Whether it is a list or an array of step functions."""
    is_array = isinstance(predictions, np.ndarray) and predictions.dtype == object
    if not (is_array or isinstance(predictions, (list, tuple))) or len(predictions) == 0:
        return False
    return callable(predictions[0]) and hasattr(predictions[0], "x")


def _is_frame(predictions: object) -> bool:
    return hasattr(predictions, "index") and hasattr(predictions, "columns")


def _curves_of(frame: Any, n: int) -> SurvivalCurve:
    if frame.shape[1] != n:
        hint = ": pass the transpose, predictions.T" if len(frame) == n else ""
        raise ValueError(
            f"predictions must have a column of survival for each of {n} targets, and times as "
            f"their index, got {frame.shape[1]} columns{hint}."
        )
    return SurvivalCurve.from_curves(frame)


def _two_columns(targets: Any) -> dict[str, Any] | None:
    """The fields of a structured array, or the columns of two that are not a list of pairs."""
    names = getattr(getattr(targets, "dtype", None), "names", None)
    if names is not None:
        return {name: targets[name] for name in names} if len(names) == 2 else None
    if isinstance(targets, tuple) and len(targets) == 2:
        return {"the first of targets": targets[0], "the second of targets": targets[1]}
    if list(getattr(targets, "shape", ()))[1:] != [2]:
        return None
    if hasattr(targets, "columns"):
        return {str(name): targets[name] for name in targets.columns}
    return {f"column {k}": targets[:, k] for k in range(2)}


def _with_events(columns: dict[str, Any]) -> Between:
    """Times, which are known where there was an event."""
    arrays = {name: as_numpy("targets", x) for name, x in columns.items()}
    sizes = {len(x) for x in arrays.values()}
    if len(sizes) > 1:
        raise ValueError(f"targets must have as many events as times, got {sorted(sizes)}.")
    events = [name for name, x in arrays.items() if np.isin(x, (0, 1)).all()]
    found = [name for name in events if arrays[name].dtype.kind == "b"] or events
    if len(found) != 1:
        values = {name: np.unique(x)[:3].tolist() for name, x in arrays.items()}
        shown = " and ".join(f"{name} of {listed(x)}" for name, x in values.items())
        raise ValueError(
            "targets must be times and events, one column of True or 1 where there was an event, "
            f"got {shown}: pass the pair (time, event == value), with the value of an event."
        )
    (event,) = found
    (time,) = arrays.keys() - {event}
    if "cens" in event.lower():
        n_ones = int(np.sum(arrays[event]))
        raise ValueError(
            f"targets must say where there was an event, got {event}, which is 1 in {n_ones} of "
            f"{len(arrays[event])} rows: pass the pair (time, {event} == 1) if 1 is an event, as "
            f"in GBSG2, and (time, {event} == 0) if it is a censored row."
        )
    times = table_of_arrays(**{"targets": arrays[time]}).numbers("targets")
    return Between(times, np.where(arrays[event].astype(bool), times, np.inf))
