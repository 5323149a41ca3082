"""Whatever arrays people have, as NumPy arrays that know what is missing."""

from typing import Any

import numpy as np

from calibjax.evaluation._arrays import read_array


def cells_of(name: str, values: Any, at_least: int = 1) -> np.ndarray:
    """An array whose texts are objects, and whose missing values are None, NaN or NaT."""
    try:
        array = _array_of(values)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise ValueError(f"data, column {name}: NumPy cannot read it: {reason}.") from error
    if array.ndim < at_least:
        raise ValueError(f"data, column {name}: expected one value for each row, got {values!r}.")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind in "UT":
        return array.astype(object)
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32):  # bfloat16
        return array.astype(np.float32)
    return array


def _array_of(values: Any) -> np.ndarray:
    """An array, of objects if something is missing that would be NaN among numbers otherwise."""
    if isinstance(values, np.ma.MaskedArray):
        objects = np.asarray(values.data).astype(object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    if isinstance(values, list) and any(isinstance(x, str) for x in values):
        return _objects(values)  # NumPy would make the text "nan" of what is missing
    count = getattr(values, "null_count", 0)  # of Polars a method, and of Arrow a number
    if not (count() if callable(count) else count):
        return read_array(values)
    return _objects(values.to_list() if hasattr(values, "to_list") else values.to_pylist())


def _objects(items: list[Any]) -> np.ndarray:
    """An array of the items, also where these are lists."""
    array = np.empty(len(items), object)
    for row, item in enumerate(items):
        array[row] = item
    return array
