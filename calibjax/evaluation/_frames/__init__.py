"""Columns of tables, by their names, as predictions, targets and what else is known of rows."""

from calibjax.evaluation._frames._columns import ColumnNames, Model
from calibjax.evaluation._frames._frame import cells_of, read_frame
from calibjax.evaluation._frames._prediction_columns import PredictionColumns
from calibjax.evaluation._frames._row_columns import (
    columns_of_rows,
    dependence_of,
    group_columns,
    groups_of,
    targets_of,
    weights_of,
)
from calibjax.evaluation._frames._table import Table, are_empty
