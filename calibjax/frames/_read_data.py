"""One data set of a frame or a file."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from calibjax._base.check import check_flag
from calibjax._base.text import listed
from calibjax._data.data import Data
from calibjax.frames._columns import Columns, Model
from calibjax.frames._read_table import read_table
from calibjax.frames._row_columns import data_of
from calibjax.frames._table import Table

#: The name of a column.
Name = str | None
#: A pattern with one ``*``, or the name of each column.
Names = str | Sequence[str] | None


class ColumnOptions(TypedDict, total=False):
    """Which columns of a frame or a file hold what, as `read_data` documents it."""

    target: Name
    probs: Names
    prob: Name
    event: Name
    mean: Name
    sd: Name
    quantiles: Names
    levels: Sequence[float] | None
    sort_quantiles: bool
    draws: Names
    survival: Names
    censored: Name
    weights: Any
    clusters: Any
    times: Any
    horizon: Any
    groups: Any
    classes: Sequence[Any] | None
    normalize: bool
    drop_missing: bool


def read_data(source: Any, **columns: Unpack[ColumnOptions]) -> Data:
    """The data set in a frame or a file, which every function takes.

    Args:
        source: a frame of pandas, Polars, Arrow or Modin; a mapping of names to arrays ``[n]`` or
            ``[n, m]``; a dataset of xarray, whose rows are the cells of its target; or the path of
            a .csv, .tsv, .jsonl, .json, .parquet, .arrow or .npz file, also with .gz.  Beside an
            array of a mapping may stand the names of its dimensions, ``(("time", "member"),
            array)``.
        target: the column of what was observed.  One of probs, prob, mean with sd, quantiles,
            draws, and survival says where the predictions are.
        probs: the columns of probabilities of classes, a list, or a pattern such as "p_*", where *
            stands for the names of the classes, or an array ``[n, m]``.
        prob: the column of the probability of an event.
        event: the label of this event; None for labels such as "no" and "yes".  With survival, the
            column that says whether there was an event at the time in the column of targets.
        mean: the column of means of normal predictions.
        sd: the column of their standard deviations.
        quantiles: the columns of quantiles, a list, or a pattern such as "q*", where * stands for
            the level, as in q0.1 or q10.
        levels: the levels of the quantiles, if names do not say them.
        sort_quantiles: whether to sort the quantiles of each row, if they cross.
        draws: the columns of draws, a list, a pattern such as "draw_*", or an array ``[n, S]``.
        survival: the columns of survival curves, a list or a pattern such as "S_*", where * stands
            for the time, as in S_365.
        censored: for mean and sd, a column of truth values: true if the target is only known to be
            larger.
        weights: the column of how much each row counts, numbers that are known before the targets.
        clusters: a column of names, numbers or dates: rows of one cluster, such as a hospital or a
            topic, may depend on each other in any way.
        times: a column of numbers, or of dates, which count as days: rows of one time may depend on
            each other in any way.  Not together with clusters.
        horizon: a number in units of the times, or of days, or a timedelta: rows less than it apart
            may depend on each other, as forecasts for h steps ahead do that are issued at every
            step.
        groups: names of columns, such as ["region", "lead"], whose segments `segment_test` tests.
        classes: the names of the classes in the order of the columns of probs; None for the names
            that the columns have.
        normalize: whether to divide each row of probabilities by its sum, for rounded ones.
        drop_missing: whether to leave out rows that miss a value of a column that is used; a
            warning says how many are left.

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
    given = given_columns(columns)
    return read_model(read_table(source, given.get("target")), given)[1]


def given_columns(columns: ColumnOptions) -> dict[str, Any]:
    """The options that are not left at their defaults; a TypeError for others."""
    for name in columns.keys() - ColumnOptions.__annotations__.keys():
        names = listed([*ColumnOptions.__annotations__])
        raise TypeError(f"{name} is no argument; there are {names}.")
    return {x: y for x, y in columns.items() if not (y is None or y is False)}


def read_model(table: Table, columns: Mapping[str, Any]) -> tuple[Model, Data]:
    """The predictions in a table, and their data set with what other columns say of the rows."""
    beside: Any = {name: columns.get(name) for name in ("censored", "weights", "clusters", "times")}
    for argument, name in beside.items():
        if not (name is None or isinstance(name, str)):
            raise TypeError(
                f"{argument} must be the name of a column of data, got {type(name).__name__}."
            )
    for flag in ("sort_quantiles", "normalize", "drop_missing"):
        check_flag(flag, columns.get(flag, False))
    groups: Any = columns.get("groups")
    groups = [groups] if isinstance(groups, str) else [] if groups is None else groups
    if not isinstance(groups, Sequence) or not all(isinstance(name, str) for name in groups):
        raise TypeError(
            "groups must be a list of names of columns of data, such as ['region'], got "
            f"{type(groups).__name__}."
        )
    used: Any = {x: y for x, y in columns.items() if x not in (*beside, "horizon", "groups")}
    model = Columns(**used).of(table, others=list(beside.values()))
    return model, data_of(model, **beside, horizon=columns.get("horizon"), groups=groups)
