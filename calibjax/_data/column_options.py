"""The options that name columns of a frame or a file, in Python and on the command line."""

import inspect
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict

import numpy as np

#: The name of a column.
Name = str | None
#: A pattern with one ``*``, or the name of each column, in a list or between commas.
Names = str | Sequence[str] | None
#: Rows whose times are closer may depend on each other.
Horizon = float | timedelta | np.timedelta64 | None
# What Python calls by a word for many rows has the word for one column on the command line.
_COMMAND = {"weights": "weight", "clusters": "cluster", "times": "time", "groups": "segments"}


class ColumnOptions(TypedDict, total=False):
    """Which columns hold what, and how they are read.

    target: column of outcomes.  For classes: their names, or if no value is a name, positions of
        the columns from 0. For other predictions: numbers.
    probs: columns of class probabilities, such as 'p_*', where * is the name of the class; or one
        column with a list or array for each row.  In Python also a list of columns.
    prob: column of event probabilities.  An event is a target of 1, true, yes, on or positive; for
        other labels, use `event`.
    event: label of the event of `prob`, such as rain.  With `survival`: the column that is true if
        the event was observed, false if the row was censored.
    mean: column of means of normal predictions.
    sd: column of standard deviations of normal predictions.
    quantiles: columns of predicted quantiles, such as 'q*', where * is the quantile level, as in
        q0.1 or q10. In Python also a list of columns.
    levels: quantile levels in the order of the columns, such as 0.1,0.5,0.9, if the names of the
        columns do not contain them.  In Python also a list.
    sort_quantiles: sort the quantiles of each row if they cross.
    draws: columns of draws (samples, members), such as 'draw_*'; or one column with a list or array
        for each row.  In Python also a list of columns.
    normalize: divide the class probabilities of each row by their sum.
    percent: read `prob` or `probs` as percentages, from 0 to 100.
    drop_missing: drop rows with missing values in used columns.  In Python a warning says how many
        are left.
    survival: columns of survival probabilities, such as 'S_*', where * is the time, as in S_365.
        `target` is then the time of the event or of censoring, and `event` the column that says
        whether the event was observed.  In Python also a list of columns.
    censored: column that is true if the row is right-censored: its target is then a lower bound.
        Only for `mean`.
    weights: column of row weights, known before the targets.  If weights depend on the outcome: one
        column for each class, in order, such as w_none,w_event, with the weight that the row has if
        its outcome is this class.  In Python a list of names.
    clusters: column such as hospital: rows with the same value may depend on each other in any way.
    times: column of numbers or dates: rows with the same value may depend on each other; for rows
        with nearby values, add `horizon`. Not together with `clusters`.
    horizon: rows whose times differ by less than this may depend on each other: 4 for forecasts 4
        steps ahead that are issued at every step.  In units of `times`, for dates in days.  In
        Python also a timedelta.
    groups: columns such as region,lead,age: test all segments defined by one or two of them, with
        adjusted p-values.  In Python a list of names, for `segment_test`.
    classes: names of the classes in the order of the columns of `probs`, if these do not say them.
    """

    target: Name
    probs: Names
    prob: Name
    event: Name
    mean: Name
    sd: Name
    quantiles: Names
    levels: str | Sequence[float] | None
    sort_quantiles: bool
    draws: Names
    normalize: bool
    percent: bool
    drop_missing: bool
    survival: Names
    censored: Name
    weights: object
    clusters: object
    times: object
    horizon: Horizon
    groups: object
    classes: Sequence[object] | None


#: The names of all options, and of those that are true or false.
OPTIONS = [*ColumnOptions.__annotations__]
FLAGS = [name for name, kind in ColumnOptions.__annotations__.items() if kind is bool]


def option_name(name: str) -> str:
    """What the command line calls an argument."""
    return f"--{_COMMAND.get(name, name).replace('_', '-')}"


def documented(indent: str) -> str:
    """The descriptions of all options, as lines of a docstring that begin with an indent."""
    lines = (inspect.getdoc(ColumnOptions) or "").splitlines()[2:]
    return "\n".join(indent + line for line in lines).lstrip()


def command_help() -> dict[str, str]:
    """What --help says of each option: names of others are options, and Python is left out."""
    found = {}
    for name, text in re.findall(r"^(\w+): (.+(?:\n .+)*)", documented(""), re.M):
        said = " ".join(text.split()).partition(" In Python")[0].replace("``", "")
        said = re.sub("`(.+?)`", lambda option: option_name(option[1]), said)
        found[name] = said[0].upper() + said[1:]
    return found
