"""Arguments of `evaluate` that name columns, and those that hold values."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from calibjax.evaluation._frames._columns import ColumnNames


def are_columns(targets: Any, names: ColumnNames, censored: str | None) -> bool:
    """Whether arguments name columns of a frame, and do not hold predictions and targets.

    Raises:
        TypeError: neither targets nor names of columns are given, or both are.
    """
    known = ColumnNames(classes=names.classes, normalize=names.normalize)
    if names == known and censored is None:
        if targets is None or isinstance(targets, str):
            got = "nothing" if targets is None else f"the text {targets!r}"
            raise TypeError(
                f"targets must hold what was observed, got {got}; of a frame target and others "
                f"name columns, as in evaluate(frame, target={targets or 'label'!r}, probs='p_*')."
            )
        return False
    if targets is not None and names == dataclasses.replace(known, drop_missing=True):
        raise TypeError(
            "drop_missing must be False for arrays, whose rows you drop: known = "
            "~numpy.isnan(targets), evaluate(predictions[known], targets[known]); it is for names "
            "of columns, as in evaluate(frame, target='label', probs='p_*', drop_missing=True)."
        )
    if targets is not None:
        raise TypeError(
            "targets must not be given where arguments name columns: in "
            "evaluate(frame, target='label', probs='p_*') target names the column of targets."
        )
    return True


def check_names(**names: Any) -> None:
    """An error unless each of these is a name of a column, or None.

    Raises:
        TypeError: one is something else.
    """
    for argument, name in names.items():
        if not (name is None or isinstance(name, str)):
            raise TypeError(
                f"{argument} must be the name of a column of data, got {type(name).__name__}."
            )


def names_of_groups(groups: Any) -> Sequence[str]:
    """The names of columns of groups.

    Raises:
        TypeError: these are no names.
    """
    if groups is None or isinstance(groups, str):
        return [] if groups is None else [groups]
    is_list = isinstance(groups, Sequence) and not isinstance(groups, Mapping)
    if not is_list or not all(isinstance(name, str) for name in groups):
        raise TypeError(
            f"groups must be a list of names of columns of data, such as ['region'], got "
            f"{type(groups).__name__}."
        )
    return groups
