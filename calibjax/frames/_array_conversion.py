"""Whatever holds numbers, as NumPy arrays: lists, frames and columns, tensors."""

from typing import SupportsFloat

import numpy as np

from calibjax._data.typed_column import is_missing as is_missing_item
from calibjax._data.typed_column import read_array


def as_numpy(name: str, value: object) -> np.ndarray:
    """The numbers, truth values or strings of an argument as an array of NumPy.

    Args:
        name: the argument, for errors.
        value: nested lists, a frame or a column of pandas or polars, a tensor of torch, or anything
            else that NumPy reads by ``__array__`` or DLPack.

    Returns:
        An array whose dtype is boolean, a number that JAX has too, or a string.

    Raises:
        TypeError: the value is a class, a string or a function, or holds neither numbers nor
            strings.
        ValueError: its rows have different lengths, or a value is missing.
    """
    if isinstance(value, type):
        raise TypeError(f"{name} must hold values, got a class: call {value.__name__}(parameters).")
    if hasattr(value, "predict_proba"):
        got = type(value).__name__
        raise TypeError(f"{name} must hold values, got {got}: pass what its predict_proba returns.")
    if value is None or isinstance(value, (str, bytes, dict)) or callable(value):
        raise TypeError(f"{name} must be an array, a list or a frame, got {_described(value)}.")
    array = cells_of(name, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        index = tuple(np.argwhere(np.ma.getmaskarray(value))[0].tolist())
        raise ValueError(f"{name} must not have missing values; {_where(index)} is masked.")
    if array.dtype == object:
        return _from_objects(name, array)
    if array.dtype.kind == "f":
        # JAX has no long doubles and no foreign byte order, and 16 bits are too few to compute in.
        return array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64, copy=False)
    if array.dtype.kind not in "biu":
        raise TypeError(f"{name} must hold numbers or strings, got dtype {array.dtype}.")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def cells_of(called: str, values: object) -> np.ndarray:
    """An array whose texts are objects, and whose missing values are None, NaN or NaT."""
    try:
        array = read_array(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(
            f"{called} must be rows of equal length, of numbers or strings, got "
            f"{_described(values)} that NumPy cannot read: {reason}."
        ) from error
    if array.ndim == 0:
        raise TypeError(f"{called} must be an array, a list or a frame, got {values!r}.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    return array.astype(object) if array.dtype.kind in "UT" else array


def kinds_of(cells: np.ndarray) -> set[type]:
    """The types of all objects; none of an array of numbers, truth values or dates."""
    return set(map(type, cells.ravel().tolist())) if cells.dtype == object else set()


def is_missing(cells: np.ndarray) -> np.ndarray:
    """Which rows miss a value, ``[n]``: None, NaN, NaT or NA of pandas, one in a list, or []."""
    if cells.dtype == object:
        are_texts = kinds_of(cells) <= {str, type(None)}
        missing = [x is None if are_texts else _is_none(x) for x in cells.flat]
        found = np.array(missing, bool).reshape(cells.shape)
    else:
        found = cells != cells
    return np.asarray(found.any(axis=tuple(range(1, found.ndim))))


def _is_none(value: object) -> bool:
    if isinstance(value, (list, np.ndarray)):
        return not len(value) or any(map(_is_none, value))
    return not isinstance(value, (str, dict)) and is_missing_item(value)


def as_floats(cells: np.ndarray) -> np.ndarray:
    """Numbers and texts of numbers as floats; NaN for anything else."""
    if cells.dtype != object:
        return cells.astype(float)
    return np.array([_as_float(x) for x in cells.flat], float).reshape(cells.shape)


def _as_float(value: str | SupportsFloat) -> float:
    # Python reads 1_000 as a number, and no other program does.
    if isinstance(value, str) and "_" in value:
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _from_objects(name: str, array: np.ndarray) -> np.ndarray:
    """An array of Python objects as strings, truth values or integers if all are, else floats."""
    for index, item in np.ndenumerate(array):
        if isinstance(item, (list, tuple)) or bool(getattr(item, "shape", None)):
            raise TypeError(
                f"{name} must hold either numbers or strings; {_where(index)} is "
                f"{_described(item)}: numpy.stack(list({name})) makes one array of all rows."
            )
        if is_missing_item(item):
            raise ValueError(f"{name} must not have missing values; {_where(index)} is {item}.")
    if all(isinstance(item, str) for item in array.flat):
        return np.array(array.tolist())
    for index, item in np.ndenumerate(array):
        try:
            float(item)
        except (TypeError, ValueError):
            raise TypeError(
                f"{name} must hold either numbers or strings; {_where(index)} is {repr(item)[:60]}."
            ) from None
    # Integers of pandas may be objects, and a float does not hold a long one.
    kept = np.array(array.tolist())
    return kept if kept.dtype.kind in "biu" else array.astype(float)


def _where(index: tuple[int, ...]) -> str:
    row, *column = index
    return f"row {row}" + "".join(f", column {number}" for number in column)


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
