"""Columns of tables, by their names, as predictions, targets and what else is known of rows."""

from calibjax.evaluation._frames._arguments import are_columns as are_columns
from calibjax.evaluation._frames._arguments import check_names as check_names
from calibjax.evaluation._frames._arguments import names_of_groups as names_of_groups
from calibjax.evaluation._frames._cells import cells_of as cells_of
from calibjax.evaluation._frames._columns import ColumnNames as ColumnNames
from calibjax.evaluation._frames._columns import Model as Model
from calibjax.evaluation._frames._frame import read_frame as read_frame
from calibjax.evaluation._frames._places import Place as Place
from calibjax.evaluation._frames._rows import columns_of_rows as columns_of_rows
from calibjax.evaluation._frames._rows import dependence_of as dependence_of
from calibjax.evaluation._frames._rows import group_columns as group_columns
from calibjax.evaluation._frames._rows import groups_of as groups_of
from calibjax.evaluation._frames._rows import targets_of as targets_of
from calibjax.evaluation._frames._rows import weights_of as weights_of
from calibjax.evaluation._frames._table import Table as Table
from calibjax.evaluation._frames._table import are_empty as are_empty
from calibjax.evaluation._frames._table import listed as listed
