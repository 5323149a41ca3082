"""One data set of a frame or a file."""

from typing import Unpack

from calibjax._data.column_options import ColumnOptions, documented
from calibjax._data.data import Data
from calibjax.frames._columns import Columns, Model
from calibjax.frames._read_table import read_table

# What stands for the options in the docstring of `read_data`.
_COLUMNS = "columns: those of `ColumnOptions`."


def read_data(source: object, **columns: Unpack[ColumnOptions]) -> Data:
    """The data set in a frame or a file, which every function takes.

    One of the arguments probs, prob, mean with sd, quantiles, draws and survival says which columns
    hold the predictions.

    Args:
        source: a frame of pandas, Polars, Arrow or Modin; a mapping of names to arrays ``[n]`` or
            ``[n, m]``; a dataset of xarray, whose rows are the cells of its target; or the path of
            a .csv, .tsv, .jsonl, .json, .parquet, .arrow or .npz file, also with .gz.  Beside an
            array of a mapping may stand the names of its dimensions, ``(("time", "member"),
            array)``.
        columns: those of `ColumnOptions`.

    Returns:
        Data: labels are numbers 0 … m-1, and its fields `groups`, `classes` and `row_names` say
            what is called how.

    Raises:
        TypeError, ValueError: a column is not what it should be; the message names the column and
            the row, and says what to do.

    See also:
        `evaluate` takes a frame or a file, too.

    Example:
        >>> import jax, calibjax as cj
        >>> frame = {"p": [0.7, 0.4] * 30, "rained": ["no", "yes"] * 30, "site": [1, 2, 3] * 20}
        >>> data = cj.read_data(frame, target="rained", prob="p", groups=["site"])
        >>> data.n, data.classes, data.groups["site"][:3].tolist()
        (60, ['no', 'yes'], [1, 2, 3])
        >>> float(cj.calibration_test(jax.random.key(0), data).pvalue)
        0.001
    """
    return read_model(source, columns)[1]


read_data.__doc__ = (read_data.__doc__ or "").replace(_COLUMNS, documented(" " * 8))


def read_model(source: object, columns: ColumnOptions) -> tuple[Model, Data]:
    """The predictions in a frame or a file, and their data set."""
    found = Columns(**columns)
    model = found.of(read_table(source, found.target))
    return model, found.data(model)
