"""Columns by their names, as people have them: in a mapping, or in a frame."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from calibjax._struct import is_traced


@runtime_checkable
class Frame(Protocol):
    """A table with named columns, of pandas, Polars or others."""

    @property
    def columns(self) -> Iterable[Hashable]: ...

    def __getitem__(self, name: Hashable, /) -> object: ...


#: Columns by their names: arrays, lists or series ``[n]`` in a mapping, or a frame.
NamedColumns = Mapping[Hashable, object] | Mapping[str, object] | Frame


def named_columns(argument: str, given: NamedColumns) -> dict[str, object]:
    """The columns by their names as texts; `argument` is what errors call them."""
    if isinstance(given, Mapping):
        found = [(str(name), values) for name, values in given.items()]
    elif isinstance(given, Frame):
        found = [(str(name), given[name]) for name in given.columns]
    else:
        raise TypeError(
            f'{argument} must be a mapping of names to arrays, such as {{"region": region}}, or a '
            f"frame, got {type(given).__name__}."
        )
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{argument} must have different names, got {twice} twice.")
    return dict(found)


def column_values(argument: str, name: str, values: object, n: int) -> np.ndarray:
    """One of these columns, categories or real numbers ``[n]``, in NumPy."""
    if is_traced(values):
        raise TypeError(
            f"{argument} must be known outside of jit, got a traced array for {name}: close over "
            "it as an array of NumPy."
        )
    array = np.asarray(values)
    if array.ndim != 1 or array.size != n:
        raise ValueError(
            f"{name} in {argument} must have shape [n] with n = {n} as in the predictions, got "
            f"shape {list(array.shape)}."
        )
    if array.dtype.kind not in "bifuOSUTMm":
        raise TypeError(
            f"{name} in {argument} must hold categories or real numbers, got dtype {array.dtype}."
        )
    return array


def is_missing(values: np.ndarray) -> np.ndarray:
    """Which values are None, NaN, NaT or pandas' NA, ``[n]``."""
    if values.dtype.kind in "Mm":
        return np.isnat(values)
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.size, bool)
    return np.array([x is None or str(x) in ("nan", "NaT", "<NA>") for x in values], bool)


def text_of_time(value: np.datetime64 | np.timedelta64) -> str:
    """A date, with the time of the day unless it is midnight; a difference of times in hours."""
    if isinstance(value, np.timedelta64):
        return f"{value / np.timedelta64(1, 'h'):g} h"
    return str(np.datetime_as_string(value, unit="auto"))


def in_one_kind(values: np.ndarray) -> np.ndarray:
    """Values that are known in an array of their own kind; objects of several kinds as texts."""
    if values.dtype.kind != "O":
        return values
    kinds = {type(x) for x in values}
    if kinds and kinds <= {bool, np.bool_}:
        return values.astype(bool)
    if all(isinstance(x, (int, float, np.number)) and not isinstance(x, bool) for x in values):
        return values.astype(np.float64)
    return np.array([str(x) for x in values], dtype=np.str_)
