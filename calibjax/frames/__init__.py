"""Data sets from frames, files, and arrays of any kind."""

from calibjax.frames._array_conversion import as_floats, as_numpy, is_missing
from calibjax.frames._columns import (
    Columns,
    Model,
    as_iso,
    cluster_numbers,
    given_columns,
    groups_of,
    read_rows,
    read_times,
    stems_of,
)
from calibjax.frames._prediction_columns import PredictionColumns
from calibjax.frames._read_data import read_arrays, read_data, read_model, read_table
from calibjax.frames._table import Table

__all__ = ["read_data"]
__dir__ = __all__.copy
