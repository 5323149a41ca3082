"""Whatever arrays people have, as NumPy arrays that know what is missing."""

from typing import Any

import numpy as np

from calibjax._rows import read_array


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
