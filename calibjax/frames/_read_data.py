"""Frames, mappings, datasets of xarray and files as columns by their names, and as one data set.

So are predictions and targets that are arrays or distributions of any library; survival curves and
times of events are read as packages of survival analysis have them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from calibjax._base.check import check_flag
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import on_host
from calibjax._base.text import listed
from calibjax._data.column_options import ColumnOptions, documented
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored
from calibjax._data.typed_column import check_same_order, named_columns, text_of
from calibjax._data.typed_column import is_missing as is_missing_item
from calibjax.distributions import SurvivalCurve, as_predictions, is_distribution
from calibjax.frames._array_conversion import as_numpy, cells_of
from calibjax.frames._columns import Columns, Model, read_rows
from calibjax.frames._labels import SEVERAL_LABELS, are_several_labels, read_labels
from calibjax.frames._table import Table, table_of_arrays


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


#: Predictions, targets ``[n]``, ``[n, d]`` or IntervalCensored, and the names of the classes or
#: None.
_Samples = tuple[Distribution, Any, list[Any] | None]


def _read_samples(
    predictions: Any, targets: object, classes: Sequence[Any] | None, normalize: bool
) -> _Samples:
    if is_distribution(targets):
        raise TypeError(f"targets must hold values, got {type(targets).__name__}: {IN_ORDER}")
    predictions, targets = read_lifetimes(predictions, targets)
    if isinstance(predictions, IntervalCensored):
        raise TypeError(f"predictions must be a distribution, got IntervalCensored: {IN_ORDER}")
    if isinstance(targets, IntervalCensored):
        for name, given in {"classes": classes is not None, "normalize": normalize}.items():
            if given:
                raise ValueError(f"{name} must not be given for targets that are IntervalCensored.")
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
    """A `SurvivalCurve` and `IntervalCensored` from curves and times with events; else unchanged.

    Args:
        predictions: step functions of scikit-survival, or with such targets a frame of curves whose
            index are times, as lifelines and pycox have it; or a distribution.
        targets: a structured array of events and times, as scikit-survival has it, or two columns
            of them; or `IntervalCensored`, or times that are all of events.

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
    if columns is None or isinstance(targets, IntervalCensored):
        if isinstance(targets, IntervalCensored) and _is_frame(predictions):
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


def read_intervals(p: object, targets: IntervalCensored) -> tuple[Distribution, IntervalCensored]:
    """Predictions that are a distribution, and both ends as arrays."""
    if not is_distribution(p):
        raise TypeError(
            "predictions must be a distribution for targets that are IntervalCensored, such as "
            f"calibjax.Weibull(concentration, scale), got {type(p).__name__}."
        )
    predictions = on_one_device(as_predictions(p))
    if isinstance(predictions, Labels):
        raise TypeError(
            "targets must be an array, got IntervalCensored: it is for predictions of numbers, got "
            f"{type(predictions).__name__} predictions of classes."
        )
    ends = (on_host(as_numpy(name, x)) for name, x in targets.named_ends().items())
    return predictions, IntervalCensored(*ends)


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


def _with_events(columns: dict[str, Any]) -> IntervalCensored:
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
    return IntervalCensored(times, np.where(arrays[event].astype(bool), times, np.inf))


# What stands for the options in the docstring of `read_data`.
_COLUMNS = "columns: those of `ColumnOptions`."


def read_data(source: object, **columns: Unpack[ColumnOptions]) -> Data:
    """The data set in a frame or a file, which every function takes.

    One of the arguments probs, prob, mean with sd, quantiles, draws and survival says which columns
    hold the predictions; a log of lm-evaluation-harness needs none.

    Args:
        source: a frame of pandas, Polars, Arrow or Modin; a mapping of names to arrays ``[n]`` or
            ``[n, m]``; a dataset of xarray, whose rows are the cells of its target; or the path of
            a .csv, .tsv, .jsonl, .json, .parquet, .arrow or .npz file, also with .gz.  Beside an
            array of a mapping may stand the names of its dimensions, ``(("time", "member"),
            array)``.
        columns: those of `ColumnOptions`.

    Returns:
        Data: labels are numbers 0 … m-1, and its fields `groups`, `classes` and `row_names` say
            what is called how.

    Raises:
        TypeError, ValueError: a column is not what it should be; the message names the column and
            the row, and says what to do.

    See also:
        `evaluate` also takes a frame or a file.

    Example:
        >>> import jax, calibjax as cj
        >>> frame = {"p": [0.7, 0.4] * 30, "rained": ["no", "yes"] * 30, "site": [1, 2, 3] * 20}
        >>> data = cj.read_data(frame, target="rained", prob="p", groups=["site"])
        >>> data.n, data.classes, data.groups["site"][:3].tolist()
        (60, ['no', 'yes'], [1, 2, 3])
        >>> float(cj.calibration_test(jax.random.key(0), data).pvalue)
        0.001
    """
    return read_model(source, columns)[1]


read_data.__doc__ = (read_data.__doc__ or "").replace(_COLUMNS, documented(" " * 8))


def read_model(source: object, columns: ColumnOptions) -> tuple[Model, Data]:
    """The predictions in a frame or a file, and their data set."""
    said = Columns(**columns)
    table = read_table(source, said.target)
    found = said.in_table(table)
    model = found.of(table)
    return model, found.data(model)


def read_table(source: Any, target: str | None = None) -> Table:
    """The columns of a source.

    Args:
        source: a path, a frame, a mapping of names to arrays, or a dataset of xarray.  A mapping
            may have the names of the dimensions beside each array, ``(("time", "member"),
            values)``, as xarray takes them.
        target: the column of targets, whose dimensions are the rows of a dataset.

    Raises:
        TypeError: it is something else.
        ValueError: two columns have the same name, or lengths or dimensions do not fit.
    """
    if isinstance(source, (str, Path)):
        from calibjax.frames.files import read_files  # needs Polars

        return read_files([Path(source)])
    if hasattr(source, "to_dataset") and hasattr(source, "dims"):
        raise TypeError(
            "data must be a Dataset of predictions and targets, got a DataArray: "
            "xarray.Dataset({'forecast': forecast, 'observed': observed}) makes one."
        )
    if isinstance(source, Mapping) and any(map(_has_dimensions, source.values())):
        try:
            import xarray
        except ModuleNotFoundError:
            words = "data: named dimensions need xarray: pip install xarray"
            raise ModuleNotFoundError(words, name="xarray") from None
        try:
            source = xarray.Dataset(source)
        except ValueError as error:
            raise ValueError(f"data must have dimensions that fit: {error}") from None
    if hasattr(source, "data_vars"):
        return _of_dataset(source, target)
    is_mapping = isinstance(source, Mapping)
    given = named_columns("data", source) if is_mapping else _columns_of_frame(source)
    columns = {name: cells_of(f"data, column {name}", values) for name, values in given.items()}
    for name, values in columns.items():
        if values.ndim > 2:
            raise ValueError(
                f"data, column {name}: expected one value or one array for each row, got shape "
                f"{list(values.shape)}; name the dimensions of each array, as in "
                f"{{{name!r}: (('time', 'station', 'member'), array)}}."
            )
    sizes = {len(values) for values in columns.values()}
    if len(sizes) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in columns.items())
        raise ValueError(f"data must have columns of the same length, got {lengths}.")
    return Table(columns, np.arange(max(sizes, default=0)))


def _columns_of_frame(frame: Any) -> dict[str, Any]:
    """The columns of a frame of any library, and the levels of an index that have names."""
    try:
        import narwhals as nw
    except ModuleNotFoundError:
        words = "data: a frame needs narwhals: pip install 'calibjax[frames]'"
        raise ModuleNotFoundError(words, name="narwhals") from None
    try:
        names = nw.from_native(frame, eager_only=True).columns
    except TypeError:
        hint = ": data.collect() computes it" if hasattr(frame, "collect") else ""
        raise TypeError(
            "data must be a frame of pandas, Polars or Arrow, a mapping of names to arrays, or a "
            f"dataset of xarray, got {type(frame).__name__}{hint}."
        ) from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"data must have different names of columns: {reason}.") from None
    levels = getattr(getattr(frame, "index", None), "names", [])
    levels = [name for name in levels if name is not None and name not in names]
    read = nw.from_native(frame.reset_index(level=levels) if levels else frame, eager_only=True)
    series = {str(name): read.get_column(name) for name in read.columns}
    kinds = nw.Categorical, nw.Enum
    # Arrow forgets what is missing in an array of categories, which are texts.
    texts = {
        name: [None if is_missing_item(item) else text_of(item) for item in x.to_list()]
        for name, x in series.items()
        if x.dtype in kinds
    }
    return {name: x.to_native() for name, x in series.items()} | texts


def _of_dataset(data: Any, target: str | None) -> Table:
    """The cells of the targets as rows; an array may have one dimension that targets lack.

    It is the same along dimensions of the targets that it does not have.
    """
    if target not in data:
        return Table(dict.fromkeys(map(str, data.variables), np.zeros(0)), np.zeros(0, int))
    goal, within = data[target], {}
    frame = goal.to_dataframe(name=target).reset_index()
    columns = {str(name): cells_of(f"data, column {name}", frame[name]) for name in frame}
    for name in (x for x in data.variables if x not in frame):
        others = [dim for dim in data[name].dims if dim not in goal.dims]
        if len(others) > 1:
            raise ValueError(
                f"data, column {name}: expected the dimensions {listed(goal.dims) or 'none'} "
                f"of the target {target} and at most one more, got {listed(data[name].dims)}."
            )
        if set(data[name].dims) == set(others) == {name}:
            continue  # it names the columns of others
        full = data[name].broadcast_like(goal).transpose(*goal.dims, *others)
        values = cells_of(f"data, column {name}", full)
        columns[str(name)] = values.reshape(len(frame), *values.shape[goal.ndim :])
        if others and others[0] in data.coords:
            within[str(name)] = [text_of(x) for x in data[others[0]].to_numpy()]
    return Table(columns, np.arange(len(frame)), dims=goal.dims, within=within)


def _has_dimensions(value: object) -> bool:
    """Whether it is a pair of names of dimensions and an array, as xarray takes it."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    dims = (value[0],) if isinstance(value[0], str) else value[0]
    return isinstance(dims, (tuple, list)) and all(isinstance(dim, str) for dim in dims)
