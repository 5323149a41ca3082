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

    target: column of observed outcomes: names of classes, or if no class has such a name numbers
        from 0 in the order of the columns; for other predictions real numbers.
    probs: columns of class probabilities, such as 'p_*', where * stands for the names of the
        classes; or one array ``[n, m]``.  In Python also a list of columns.
    prob: column of event probabilities.  The label of the event is 1, true, yes, on or positive;
        `event` names another one.
    event: label of the event of `prob`, such as rain of labels rain and dry; with `survival` the
        column that says whether the event was observed.
    mean: column of means of normal predictions.
    sd: column of standard deviations of normal predictions.
    quantiles: columns of predicted quantiles, such as 'q*', where * stands for the quantile level,
        as in q0.1 or q10.  In Python also a list of columns.
    levels: quantile levels, such as 0.1,0.5,0.9, if the columns do not name them.  In Python also a
        list.
    sort_quantiles: sort the quantiles of each row if they cross.
    draws: columns of draws from each prediction, such as 'draw_*'; or one array ``[n, S]``.  In
        Python also a list of columns.
    normalize: divide class probabilities by their sum.
    percent: probabilities of `prob` or `probs` are percentages, from 0 to 100, as language models
        state their confidence.
    drop_missing: drop rows with missing values in used columns.  In Python a warning says how many
        are left.
    survival: columns of survival curves, such as 'S_*', where * stands for the time, as in S_365.
        `target` is then the time of the event or of censoring, and `event` the column that says
        which.  In Python also a list of columns.
    censored: column of truth values, for `mean`: true if right-censored.
    weights: column of row weights, known before the targets.  If weights depend on the label, a
        column for each label in the order of the classes, such as w_none,w_event for an event: the
        weight of the row under this label.  In Python a list of names.
    clusters: column of names, numbers or dates: rows of one cluster, such as a hospital or a topic,
        may depend on each other in any way.
    times: column of numbers or dates: rows of one time may depend on each other, and with `horizon`
        rows at closer times.  It cannot be used together with `clusters`.
    horizon: rows whose times differ by less may depend on each other, such as forecasts for h steps
        ahead that are issued at every step; in units of `times`, for dates in days.  In Python also
        a timedelta.
    groups: columns, such as region,lead,age, whose segments are tested.  All segments of one or two
        columns are tested at once.  In Python a list of names, for `segment_test`.
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
