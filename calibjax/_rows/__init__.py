"""Rows of predictions and targets: checked at the door, cleaned before they are used."""

from calibjax._rows._checked import (
    check_data,
    check_distribution,
    check_dtype_of_targets,
    check_locations,
    check_predictions,
    check_rows,
    parameters,
)
from calibjax._rows._column_code import ColumnCode
from calibjax._rows._covariates import CovariatesLike, covariate_columns, with_covariates
from calibjax._rows._data import (
    Covariates,
    Data,
    clean,
    clean_kept_first,
    counted_rows,
    fill_masked,
    in_dtype,
    kept_first,
    valid_rows,
)
from calibjax._rows._dependence import (
    Dependence,
    check_unrelated,
    describe_units,
    n_units,
    with_dependence,
)
from calibjax._rows._digits import in_one_precision
from calibjax._rows._ladder import filled_up, first_rows, padded, rung
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
