"""Frames of pandas, Polars and Arrow, mappings of arrays, and datasets of xarray, as tables."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from calibjax._rows import named_columns
from calibjax.evaluation._frames._cells import cells_of
from calibjax.evaluation._frames._grid import Grid, Variable
from calibjax.evaluation._frames._python_table import PythonTable
from calibjax.evaluation._frames._table import Table


def read_frame(data: Any, target: str | None) -> Table:
    """A table of what people have.

    Args:
        data: a frame, a mapping of names to arrays, or a dataset of xarray.  A mapping may have the
            names of the dimensions beside each array, ``(("time", "member"), values)``, as those
            that xarray makes a dataset of.
        target: the column of targets, whose dimensions are the rows of a dataset.

    Raises:
        TypeError: it is something else.
        ValueError: two columns have the same name, or lengths or dimensions do not fit.
    """
    if hasattr(data, "data_vars"):
        names = [*map(str, data.data_vars), *map(str, data.coords)]
        variables = {name: Variable.of(name, data[name].dims, data[name]) for name in names}
        return Grid.of(variables, target)
    if hasattr(data, "dims") and hasattr(data, "to_dataset"):
        raise TypeError(
            "data must be a Dataset of predictions and targets, got a DataArray: "
            "xarray.Dataset({'forecast': forecast, 'observed': observed}) makes one."
        )
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise TypeError("data must be a frame, got a lazy one: data.collect() computes it.")
    if isinstance(data, Mapping) and any(map(_has_dimensions, data.values())):
        return Grid.of(
            {
                str(name): Variable.of(str(name), *value)
                if _has_dimensions(value)
                else Variable.of(str(name), [str(name)], value)
                for name, value in data.items()
            },
            target,
        )
    if hasattr(data, "column_names"):  # of Arrow, whose columns are arrays
        names = data.column_names
        if len(set(names)) < len(names):
            raise ValueError("data must have different names of columns.")
        columns = {name: data[name] for name in names}
    else:
        try:
            columns = named_columns("data", data) | _index_of(data)
        except TypeError:
            raise TypeError(
                f"data must be a frame of pandas, Polars or Arrow, a mapping of names to arrays, "
                f"or a dataset of xarray, got {type(data).__name__}."
            ) from None
    cells = {name: cells_of(name, values) for name, values in columns.items()}
    for name, values in cells.items():
        if values.ndim > 2:
            raise ValueError(
                f"data, column {name}: expected one value or one array for each row, got shape "
                f"{list(values.shape)}; name the dimensions of each array, as in "
                f"{{{name!r}: (('time', 'station', 'member'), array)}}."
            )
    sizes = {len(values) for values in cells.values()}
    if len(sizes) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in cells.items())
        raise ValueError(f"data must have columns of the same length, got {lengths}.")
    return _Frame(np.arange(max(sizes, default=0)), cells)


@dataclasses.dataclass(frozen=True)
class _Frame(PythonTable):
    """Columns ``[n]`` or ``[n, m]``.

    Args:
        columns: the columns by their names.
    """

    columns: dict[str, np.ndarray]

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def _cells(self, name: str) -> np.ndarray:
        return self.columns[name]

    def _kept(self, kept: np.ndarray) -> Self:
        columns = {name: values[kept] for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns, rows=self.rows[kept])


def _index_of(data: Any) -> dict[str, object]:
    """The levels of the index of pandas that have names, as columns have them."""
    names = [
        name for name in getattr(getattr(data, "index", None), "names", []) if name is not None
    ]
    return {
        str(name): data.index.get_level_values(name) for name in names if name not in data.columns
    }


def _has_dimensions(value: object) -> bool:
    """Whether it is a pair of names of dimensions and an array, as xarray takes it."""
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    dims = (value[0],) if isinstance(value[0], str) else value[0]
    return isinstance(dims, (tuple, list)) and all(isinstance(dim, str) for dim in dims)
