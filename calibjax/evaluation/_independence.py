"""What to say of the rows of a table that are taken for independent, or for dependent."""

from calibjax._rows import Dependence, as_data, padded
from calibjax.evaluation._dependence import remarks_on_few_units, rows_in_words
from calibjax.evaluation._frames import ColumnNames, Model, columns_of_rows
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._neighbours import (
    neighbour_dependence_test_of_data,
    neighbours_in_columns,
    remarks_on_order,
)


def remarks_on_independence(
    model: Model, names: ColumnNames, dependence: Dependence, seed: int
) -> list[str]:
    """Warnings as those of `evaluate`: rows that depend on each other; few clusters or horizons.

    Args:
        model: the table, predictions and targets.
        names: which columns hold what; others may say which rows depend on each other.
        dependence: which rows are known to depend on each other.
        seed: what random numbers come from.
    """
    if rows_in_words(dependence) is not None:
        return remarks_on_few_units(dependence)
    key, data = keys_of(seed).neighbours, padded(as_data(model.predictions, model.targets))
    columns = neighbours_in_columns(key, data, columns_of_rows(model, names))
    return remarks_on_order(neighbour_dependence_test_of_data(key, data), columns)
