"""Frames of pandas, Polars and Arrow, mappings of arrays, and datasets of xarray, as tables."""

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from calibjax._base.text import listed
from calibjax._data import named_columns, read_array, text_of
from calibjax.frames._table import Table


def cells_of(name: str, values: Any, at_least: int = 1) -> np.ndarray:
    """An array whose texts are objects, and whose missing values are None, NaN or NaT."""
    try:
        array = read_array(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"data, column {name}: NumPy cannot read it: {reason}.") from error
    if array.dtype.kind == "f" and hasattr(values, "is_null"):  # of Polars and Arrow
        is_null = np.asarray(values.is_null())
        if is_null.any():
            array = array.astype(object)
            array[is_null] = None
    if array.ndim < at_least:
        raise ValueError(f"data, column {name}: expected one value for each row, got {values!r}.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "UT":
        return array.astype(object)
    return array


@dataclasses.dataclass(frozen=True)
class _Frame(Table):
    """Columns ``[n]`` or ``[n, m]``.

    Args:
        rows: the number of each row among all that there were, counted from 0.
        columns: the columns by their names.
    """

    rows: np.ndarray
    columns: dict[str, np.ndarray]

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    @property
    def row_numbers(self) -> np.ndarray:
        return self.rows

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def source(self) -> str:
        return "data"

    def option(self, name: str, value: object = None) -> str:
        return name if value is None else f"{name}={value!r}"

    def say(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)

    def _cells(self, name: str) -> np.ndarray:
        return self.columns[name]

    def _kept(self, kept: np.ndarray) -> Self:
        columns = {name: values[kept] for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns, rows=self.rows[kept])


@dataclasses.dataclass(frozen=True)
class _Grid(_Frame):
    """Arrays with named dimensions, whose rows are the cells of the targets.

    Args:
        columns: the arrays by their names; one that has the name of its only dimension says what
            the items along it are called.
        dims_of: the dimensions of each array.
        target: the array of targets.
        dims: the dimensions of the targets, which are the rows.
        sizes: how long all dimensions are.
    """

    dims_of: dict[str, tuple[str, ...]]
    target: str
    dims: tuple[str, ...]
    sizes: dict[str, int]

    @staticmethod
    def of(variables: Mapping[str, tuple[Any, Any]], target: str | None) -> "_Grid":
        """All cells of the targets, of dimensions and values by their names."""
        arrays, dims_of, sizes = {}, {}, dict[str, int]()
        for name, (dims, values) in variables.items():
            dims_of[name] = (dims,) if isinstance(dims, str) else tuple(map(str, dims))
            arrays[name] = cells_of(name, values, at_least=0)
            if arrays[name].ndim != len(dims_of[name]):
                raise ValueError(
                    f"data, variable {name}: expected {len(dims_of[name])} dimensions, "
                    f"{listed(dims_of[name])}, got shape {list(arrays[name].shape)}."
                )
        for name, array in arrays.items():
            for dim, size in zip(dims_of[name], array.shape, strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise ValueError(
                        f"data, variable {name}: expected {sizes[dim]} items along {dim} as in "
                        f"other variables, got {size}."
                    )
        for dim, size in sizes.items():
            arrays.setdefault(dim, np.arange(size))
            dims_of.setdefault(dim, (dim,))
        dims = dims_of.get(target or "", ())
        n = math.prod(sizes[dim] for dim in dims)
        return _Grid(np.arange(n), arrays, dims_of, target or "", dims, sizes)

    def _cells(self, name: str) -> np.ndarray:
        """An array in the order of the rows, ``[n]``, or ``[n, m]`` if it has one dimension more.

        It is the same along dimensions of the targets that it does not have.
        """
        own, dims = self.dims_of[name], self.dims
        others = self._within(name)
        if len(others) > 1:
            raise ValueError(
                f"data, variable {name}: expected the dimensions {listed(dims) or 'none'} of the "
                f"target {self.target} and at most one more, got {listed(own)}"
                f"{self._how_to_pair(name)}."
            )
        present = [dim for dim in dims if dim in own]
        axes = [own.index(dim) for dim in (*present, *others)]
        shape = [self.sizes[dim] if dim in present else 1 for dim in dims]
        within = [self.sizes[dim] for dim in others]
        values = self.columns[name].transpose(axes).reshape(*shape, *within)
        shape_of_rows = [self.sizes[dim] for dim in dims]
        full = np.broadcast_to(values, [*shape_of_rows, *within])
        return full.reshape(math.prod(shape_of_rows), *within)[self.rows]

    def _kept(self, kept: np.ndarray) -> Self:
        return dataclasses.replace(self, rows=self.rows[kept])

    def _within(self, name: str) -> list[str]:
        return [dim for dim in self.dims_of[name] if dim not in self.dims]

    def _how_to_pair(self, name: str) -> str:
        """How a target of one time goes to forecasts made at one time for some time ahead."""
        lacking = [dim for dim in self.dims if dim not in self.dims_of[name]]
        others = self._within(name)
        if len(lacking) != 1 or len(others) != 3:
            return ""
        (time,), target, made, lead = lacking, self.target, *others[:2]
        return (
            f"; if {time} is {made} + {lead}, bring the target to the dimensions of {name} first: "
            f"valid = ds.{made} + ds.{lead}; {target} = ds.{target}.sel({time}=valid)."
            f"drop_vars({time!r}); ds = ds.drop_dims({time!r}).assign({target}={target})"
        )

    def names_within(self, name: str) -> list[Any] | None:
        """The items along the dimension that targets do not have, such as levels or classes."""
        others = self._within(name) if name in self.columns else []
        if len(others) != 1 or others[0] not in self.columns:
            return None
        return [text_of(x) for x in self.columns[others[0]]]

    def cell_name(self, name: str, row: int) -> str:
        shape = [self.sizes[dim] for dim in self.dims]
        indices = np.unravel_index(self.rows[row], shape)
        at = [
            f"{dim} {text_of(self.columns[dim][index])}"
            for dim, index in zip(self.dims, indices, strict=True)
        ]
        return f"{self.source}, variable {name}, {', '.join(at)}"


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
        names = [*data.data_vars, *data.coords]
        return _Grid.of({str(name): (data[name].dims, data[name]) for name in names}, target)
    if hasattr(data, "dims") and hasattr(data, "to_dataset"):
        raise TypeError(
            "data must be a Dataset of predictions and targets, got a DataArray: "
            "xarray.Dataset({'forecast': forecast, 'observed': observed}) makes one."
        )
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        raise TypeError("data must be a frame, got a lazy one: data.collect() computes it.")
    if isinstance(data, Mapping) and any(map(_has_dimensions, data.values())):
        pairs = {
            str(name): value if _has_dimensions(value) else (str(name), value)
            for name, value in data.items()
        }
        return _Grid.of(pairs, target)
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
