"""Observations of each simulation as named columns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from calibjax._rows import Frame
from calibjax.evaluation._arrays import as_numpy
from calibjax.evaluation._posterior._parameters import is_labelled, labels_along, places_along


class Observations(NamedTuple):
    """Columns ``[n]`` by their names, and labels of the simulations or None."""

    columns: dict[str, np.ndarray]
    labels: np.ndarray | None


def read_observations(x: Any, dimension: Any) -> Observations:
    """The observations of `check_posterior`.

    Args:
        x: numbers ``[n]`` or ``[n, k]``, as an array, as an array or a dataset of xarray, or as
            columns in a frame or a mapping.
        dimension: of the simulations, as xarray calls it; the first one where it is not there.

    Raises:
        TypeError, ValueError: x is something else, or its columns differ in length.
    """
    if hasattr(x, "data_vars"):
        x = {name: x[name] for name in x.data_vars}
    if isinstance(x, Mapping):
        parts = {str(name): value for name, value in x.items()}
    elif isinstance(x, Frame):
        parts = {str(name): x[name] for name in x.columns}
    else:
        parts = {"x": x}
    columns: dict[str, np.ndarray] = {}
    labels: list[np.ndarray] = []
    for name, value in parts.items():
        places = None
        if is_labelled(value) and value.dims:
            first = dimension if dimension in value.dims else value.dims[0]
            value = value.transpose(first, ...)
            along = labels_along(value, first)
            labels += [] if along is None else [along]
            places = places_along(value, value.dims[1]) if value.ndim == 2 else None
            value = value.to_numpy()
        array = _array("x" if name == "x" else f"column {name} of x", value)
        if array.ndim == 1 or array.shape[1:] == (1,):
            columns[name] = array.reshape(len(array))
        else:
            places = places or list(map(str, range(array.shape[1])))
            columns |= {f"{name}[{place}]": array[:, k] for k, place in enumerate(places)}
    if not columns:
        raise ValueError("x must have at least one column, got none.")
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"x must have columns of one length, got {sizes}.")
    if any(not np.array_equal(along, labels[0]) for along in labels):
        raise ValueError("x must have one order of simulations for all of its columns.")
    return Observations(columns, labels[0] if labels else None)


def _array(name: str, value: Any) -> np.ndarray:
    is_array = isinstance(value, np.ndarray) or hasattr(value, "to_numpy")
    array = np.asarray(value) if is_array else as_numpy(name, value)
    if array.ndim not in (1, 2):
        cure = "; x.reshape(len(x), -1) makes columns of all further axes" if array.ndim > 2 else ""
        raise ValueError(
            f"{name} must have shape [n] or [n, k], got shape {list(array.shape)}{cure}."
        )
    return array
