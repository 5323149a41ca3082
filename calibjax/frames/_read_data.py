"""Frames, mappings, datasets of xarray and files as columns by their names, and as one data set."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from calibjax._base.text import listed
from calibjax._data.column_options import ColumnOptions, documented
from calibjax._data.data import Data
from calibjax._data.typed_column import is_missing as is_missing_item
from calibjax._data.typed_column import named_columns, text_of
from calibjax.frames._array_conversion import cells_of
from calibjax.frames._columns import Columns, Model
from calibjax.frames._table import Table

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
