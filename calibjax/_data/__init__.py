"""Predictions, targets and data sets of them: checked once, padded, cleaned before their use."""

from calibjax._data._checks import (
    check_distribution,
    check_dtype_of_targets,
    parameters,
    valid_rows,
)
from calibjax._data._column_encoding import ColumnCode
from calibjax._data._covariates import CovariatesLike, covariate_columns
from calibjax._data._data import (
    DEPENDENCE,
    NOT_PLAIN,
    Data,
    RowOptions,
    as_data,
    clean,
    clean_kept_first,
    fill_masked,
    in_dtype,
    kept_first,
)
from calibjax._data._distribution import (
    Distribution,
    families_with,
    of_part,
    tempering_refused,
    wasserstein_refused,
)
from calibjax._data._interval_censored import (
    Between,
    Targets,
    as_targets,
    known_point,
    unit_interval,
)
from calibjax._data._named_columns import Frame, NamedColumns, named_columns
from calibjax._data._padding import (
    can_be_filled,
    check_like,
    check_locations,
    check_predictions,
    check_rows,
    filled,
    padded,
)
from calibjax._data._precision import in_one_precision
from calibjax._data._typed_column import (
    NO_VALUE,
    TypedColumn,
    different,
    is_missing,
    numbered,
    read_array,
    text_of,
    typed_column,
    typed_columns,
)
