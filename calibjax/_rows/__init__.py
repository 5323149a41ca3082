"""Rows of predictions and targets: checked at the door, cleaned before they are used."""

from calibjax._rows._buckets import bucket, filled_up, first_rows
from calibjax._rows._checks import (
    check_distribution,
    check_dtype_of_targets,
    parameters,
    valid_rows,
)
from calibjax._rows._clean import clean, clean_kept_first, fill_masked, in_dtype, kept_first
from calibjax._rows._column_code import ColumnCode
from calibjax._rows._covariates import Covariates, CovariatesLike, covariate_columns
from calibjax._rows._data import (
    Data,
    RowOptions,
    as_data,
    check_locations,
    check_predictions,
    check_rows,
    padded,
    with_dependence,
)
from calibjax._rows._dependence import Dependence
from calibjax._rows._digits import in_one_precision
from calibjax._rows._named_columns import Frame, NamedColumns, named_columns
from calibjax._rows._typed_column import (
    NO_VALUE,
    TypedColumn,
    different,
    is_missing,
    numbered,
    read_array,
    text_of,
    typed_column,
)
