"""Columns of a file that a map looks at beside the predictions."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from calibjax.evaluation import Table, group_columns
from calibjax.recalibration import Recalibrator


class Beside(NamedTuple):
    """Groups and covariates as `fit_recalibrator` and a map take them; None of a kind without any.

    Both are columns ``[n]`` by their names.
    """

    groups: dict[str, np.ndarray] | None = None
    covariates: dict[str, np.ndarray] | None = None

    @classmethod
    def of(
        cls, table: Table, groups: Sequence[str], covariates: Sequence[str], is_fit: bool
    ) -> Self:
        """The columns of these names; numbers of covariates are finite.

        The rows of the fit decide whether texts are numbers, and a map reads those of other rows.
        """
        numbers = {name: table.numbers(name) for name in covariates}
        return cls(group_columns(table, groups, read=is_fit) or None, numbers or None)


def names_beside(recalibrator: Recalibrator) -> tuple[list[str], list[str]]:
    """The names of the groups and of the covariates that a map was fitted with."""
    curve = recalibrator.of_groups
    groups = [] if curve is None else [column.name for column in curve.coding.columns]
    return groups, list(recalibrator.fit.covariates)
