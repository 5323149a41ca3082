"""Data sets as people have them: frames, files, and arrays of any kind."""

from calibjax.frames._array_conversion import as_floats, as_numpy, is_missing
from calibjax.frames._arrays import Inputs, read_inputs
from calibjax.frames._columns import Columns, Model, stems_of
from calibjax.frames._prediction_columns import PredictionColumns
from calibjax.frames._read_data import ColumnOptions, given_columns, read_data, read_model
from calibjax.frames._read_table import read_table
from calibjax.frames._row_columns import (
    as_iso,
    cluster_numbers,
    dependence_of,
    groups_of,
    read_dependence,
    read_times,
    read_weights,
    targets_of,
    weights_of,
)
from calibjax.frames._table import Table
