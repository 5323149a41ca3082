"""The data set of predictions and targets that are arrays or distributions of any library.

Survival curves and times of events are read as packages of survival analysis have them.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._base.check import check_flag
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import on_host
from calibjax._base.text import listed
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax._data.typed_column import check_same_order
from calibjax.distributions import SurvivalCurve, as_predictions, is_distribution
from calibjax.frames._array_conversion import as_numpy
from calibjax.frames._columns import Columns, read_rows
from calibjax.frames._labels import SEVERAL_LABELS, are_several_labels, read_labels
from calibjax.frames._table import table_of_arrays


def read_arrays(
    predictions: object,
    targets: object,
    classes: Sequence[Any] | None = None,
    normalize: bool = False,
    groups: object = None,
    **rows: Any,
) -> Data:
    """The data set of all that `evaluate` takes but frames and files; errors say what to do.

    Raises:
        TypeError, ValueError: see `evaluate`.
    """
    check_flag("normalize", normalize)
    check_same_order(predictions=predictions, targets=targets, groups=groups, **rows)
    family, observed, names = _read_samples(predictions, targets, classes, normalize)
    data = Data(family, observed, **read_rows(**rows))
    return data.replace(groups=groups, classes=names)


#: Predictions, targets ``[n]``, ``[n, d]`` or Between, and the names of the classes or None.
_Samples = tuple[Distribution, Any, list[Any] | None]


def _read_samples(
    predictions: Any, targets: object, classes: Sequence[Any] | None, normalize: bool
) -> _Samples:
    if is_distribution(targets):
        raise TypeError(f"targets must hold values, got {type(targets).__name__}: {IN_ORDER}")
    predictions, targets = read_lifetimes(predictions, targets)
    if isinstance(predictions, Between):
        raise TypeError(f"predictions must be a distribution, got Between: {IN_ORDER}")
    if isinstance(targets, Between):
        for name, given in {"classes": classes is not None, "normalize": normalize}.items():
            if given:
                raise ValueError(f"{name} must not be given for targets that are Between.")
        return *read_intervals(predictions, targets), None
    observed = as_numpy("targets", targets)
    if not is_distribution(predictions):
        return _read_probabilities(predictions, observed, classes, normalize)
    if normalize:
        raise ValueError("normalize must be False for predictions that are a distribution.")
    family = on_one_device(as_predictions(predictions))
    if isinstance(family, Labels):
        return family, *read_labels(table_of_arrays(targets=observed), "targets", family, classes)
    if classes is not None:
        raise ValueError(f"classes must be None for {type(family).__name__} predictions.")
    if observed.dtype.kind == "U":
        raise TypeError(f"targets of {type(family).__name__} must be numbers, got strings.")
    if observed.ndim == 2 and observed.shape[1] == 1 and family.target_shape == "n":
        observed = observed[:, 0]
    if observed.dtype.kind in "iu" and family.target_kind == "real":
        observed = observed.astype(float)  # JAX would cut large integers off
    return family, observed, None


def _read_probabilities(
    predictions: object, targets: np.ndarray, classes: Sequence[Any] | None, normalize: bool
) -> _Samples:
    """Probabilities of an event ``[n]`` or ``[n, 1]``, or of classes ``[n, m]``, and labels."""
    array = as_numpy("predictions", predictions)
    array = array[:, 0] if array.shape[1:] == (1,) else array
    _check_shapes(array, targets)
    table = table_of_arrays(predictions=array, targets=targets)
    if array.ndim == 1:
        columns = Columns(target="targets", prob="predictions", classes=classes)
    else:
        names = getattr(predictions, "columns", None)
        if names is not None and len(names) == array.shape[1]:
            table = dataclasses.replace(table, within={"predictions": list(names)})
        columns = Columns(
            target="targets", probs="predictions", classes=classes, normalize=normalize
        )
    model = columns.of(table)
    return model.predictions, model.targets, model.classes


def _check_shapes(array: np.ndarray, targets: np.ndarray) -> None:
    """An error unless arrays are probabilities of an event or of classes, and labels of them."""
    is_inside = targets.dtype.kind == "f" and bool(np.all((targets >= 0) & (targets <= 1)))
    if is_inside and not _are_labels(targets) and _are_labels(array):
        got = "labels, and probabilities as targets"
        raise ValueError(f"predictions must be probabilities, got {got}: {IN_ORDER}")
    if array.ndim == 2 and array.shape == targets.shape and are_several_labels(targets):
        raise ValueError(SEVERAL_LABELS)
    if array.ndim == 1 and targets.ndim == 2 and targets.shape[1] > 1 and not _are_labels(array):
        raise ValueError(
            f"predictions must be probabilities or a distribution, got numbers, and targets of "
            f"shape {list(targets.shape)}: predictions come first, and of draws make "
            "calibjax.Empirical(draws)."
        )
    if array.dtype.kind == "U":
        raise TypeError(
            "predictions must be probabilities or a distribution, got strings: calibration is "
            "undefined for predicted class names."
        )
    if array.ndim not in (1, 2):
        is_grid = targets.ndim > 1 and not np.all((array >= 0) & (array <= 1))
        hint = "of an ensemble [n, K, m] make calibjax.Mixture.ensemble(Categorical(array))"
        if is_grid or targets.shape == array.shape[:-1]:
            hint = (
                "of a grid name the dimensions, as in evaluate({'y': (('time', 'station'), "
                "targets), 'x': (('time', 'station', 'member'), predictions)}, target='y', "
                "draws='x')"
            )
        raise ValueError(
            "predictions must be probabilities [n] of an event or [n, m] of classes, got shape "
            f"{list(array.shape)}; {hint}."
        )
    if not array.size or not targets.size:
        raise ValueError("predictions and targets must have at least two rows, got none.")
    if len(targets) != len(array):
        hint = ""
        if array.ndim == 2 and len(targets) == array.shape[1]:
            hint = (
                "; if rows are classes, pass the transpose, predictions.T, and of survival curves "
                "calibjax.SurvivalCurve(times, predictions.T), with times and events as targets"
            )
        raise ValueError(
            f"targets must have one row for each of the {len(array)} rows of predictions, got "
            f"{len(targets)}{hint}."
        )
    if array.dtype.kind in "biu" and array.ndim == 1 and np.any(array > 1):
        raise ValueError(
            "predictions must be probabilities, got whole numbers: calibration is undefined "
            "for predicted labels. Take the model's predict_proba, or its softmax."
        )


def _are_labels(array: np.ndarray) -> bool:
    return array.dtype.kind == "U" or bool(np.all(array == np.floor(array)))


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
