"""From columns of a table to predictions, targets and the names of classes."""

import dataclasses
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._base.text import listed
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Between
from calibjax.frames._labels import read_labels
from calibjax.frames._prediction_columns import PredictionColumns
from calibjax.frames._table import Table, has_lists

# A level in the name of a column, such as q0.1, q10 and 10%.
_NUMBER = r"\d+\.?\d*|\.\d+"
# The options that name columns of predictions.
_KINDS = "probs", "prob", "mean", "quantiles", "draws", "survival"
# What can be used only together with another option.
_TOGETHER = {"sd": "mean", "levels": "quantiles", "sort_quantiles": "quantiles"}


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a table.

    Args:
        table: the columns.
        columns: which of them hold the predictions.
        target: the name of the column of what was observed.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels are ``0 … m-1``, and beside survival curves it is
            `Between`.
        classes: the names of the m classes; None if they are numbers, or there are none.
    """

    table: Table
    columns: PredictionColumns
    target: str
    predictions: Distribution
    targets: Any
    classes: list[Any] | None = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns hold what, as `read_data` documents it.

    A pattern has one ``*``, and a list names each of several columns.
    """

    target: str | None = None
    probs: str | Sequence[str] | None = None
    prob: str | None = None
    event: str | None = None
    mean: str | None = None
    sd: str | None = None
    quantiles: str | Sequence[str] | None = None
    levels: str | Sequence[float] | None = None
    sort_quantiles: bool = False
    draws: str | Sequence[str] | None = None
    survival: str | Sequence[str] | None = None
    normalize: bool = False
    drop_missing: bool = False
    classes: Sequence[Any] | None = None

    def of(self, table: Table, at_least: int = 2, others: Sequence[str | None] = ()) -> Model:
        """The predictions and the targets of a table.

        Args:
            table: the columns.
            at_least: how many rows there must be.
            others: columns of which `drop_missing` leaves out missing values, too.
        """
        target = self.target
        if target is None:
            option = table.option("target")
            raise ValueError(f"{option} must say which column holds what was observed.")
        table.cells(target)
        columns = self.prediction_columns(table)
        if target in columns.names:
            table.refuse(target, "it cannot hold predictions and the targets")
        events = self.event if self.survival is not None else None
        if self.drop_missing:
            used = [*columns.names, target, *others, events]
            names = dict.fromkeys(name for name in used if name is not None)
            absent = columns.absent_by_column(table)
            table = table.without_missing(names, columns.classes or [], absent)
        predictions, classes = columns.read(table), None
        targets: Any = None
        if isinstance(predictions, Labels):
            said = self.classes
            if said is None and columns.classes is None:
                said = _letters_of_options(table, columns, target)
            targets, classes = read_labels(
                table, target, predictions, said, columns.classes, self.event
            )
            if self.event is not None and not targets.any():
                # It may be rare, or have another name.
                table.say(f"{table.called(target)}: no row is {self.event}.")
        else:
            targets = table.numbers(target)
        if events is not None:
            targets = Between(targets, np.where(table.truths(events), targets, np.inf))
        if len(table) < at_least:
            raise ValueError(
                f"{table.source}: expected at least {at_least} rows, got {len(table)}."
            )
        return Model(table, columns, target, predictions, targets, classes)

    def _kinds(self) -> dict[str, Any]:
        """What says which columns hold the predictions, by the kind of these."""
        return {kind: getattr(self, kind) for kind in _KINDS if getattr(self, kind) is not None}

    @property
    def are_said(self) -> bool:
        """Whether anything says which columns hold the predictions."""
        return bool(self._kinds()) or self.sd is not None

    def prediction_columns(self, table: Table) -> PredictionColumns:
        """Which columns of a table hold the predictions."""
        given, option = self._kinds(), table.option
        if len(given) != 1:
            # Only some commands take survival curves.
            options = ", ".join(option(kind) for kind in _KINDS if kind != "survival")
            raise ValueError(
                f"One of the options {options} must say which columns hold the predictions, got "
                f"{len(given)} of them."
            )
        ((kind, pattern),) = given.items()
        together = _TOGETHER | {"normalize": "probs", "classes": "probs", "event": "prob"}
        if kind in ("prob", "survival"):
            together |= {"event": kind, "classes": "prob"}
        for name, needed in together.items():
            is_given = getattr(self, name) is not None and getattr(self, name) is not False
            if is_given and needed != kind:
                raise ValueError(f"{option(name)} can be used only together with {option(needed)}.")
        if kind in ("prob", "mean"):
            if not isinstance(pattern, str):
                raise ValueError(f"{option(kind)} must be the name of a column.")
            if kind == "mean" and self.sd is None:
                words = "the column of the standard deviations"
                raise ValueError(f"{option('mean')} needs {option('sd')}, {words}.")
            beside = [] if self.sd is None else [self.sd]
            return PredictionColumns(kind, [pattern, *beside], pattern)
        columns, names = self._several(table, kind, pattern)
        if kind == "survival":
            if self.event is None:
                words = "the column that says whether there was an event"
                raise ValueError(f"{option(kind)} needs {option('event')}, {words}.")
            return dataclasses.replace(columns, times=_times(names or []))
        if kind == "probs":
            return dataclasses.replace(columns, classes=names, normalize=self.normalize)
        if kind == "quantiles":
            levels = self._levels(table, names)
            return dataclasses.replace(columns, levels=levels, sort=self.sort_quantiles)
        return columns

    def _several(
        self, table: Table, kind: str, pattern: str | Sequence[str]
    ) -> tuple[PredictionColumns, list[str] | None]:
        """Several columns or an array, and what is called by each column of it."""
        if not isinstance(pattern, str):
            names = list(map(str, pattern))
            if len(names) < 2:
                raise ValueError(
                    f"{table.option(kind)} must be a list of two names of columns or more, or a "
                    f"pattern with one *, got {listed(names) or 'an empty list'}."
                )
            if len(set(names)) < len(names):
                raise ValueError(f"{table.option(kind)} must be different columns.")
            return PredictionColumns(kind, names, f"{names[0]} … {names[-1]}"), names
        if "*" not in pattern:
            return PredictionColumns(kind, [pattern], pattern), table.within.get(pattern)
        stems = stems_of(table, pattern, self.target)
        return PredictionColumns(kind, list(stems), pattern), list(stems.values())

    def _levels(self, table: Table, names: Sequence[str] | None) -> list[float]:
        """The levels of all columns, as given, or as their names say them; some are percentages."""
        option = table.option
        if self.levels is not None:
            given = self.levels
            texts = given.split(",") if isinstance(given, str) else list(map(str, given))
        elif names is not None:
            texts = [_number_in(name) or str(name) for name in names]
        else:
            example = option("levels", "0.1,0.5,0.9")
            raise ValueError(
                f"{option('quantiles')} needs {option('levels')} for an array, such as {example}."
            )
        try:
            levels = [float(text) for text in texts]
        except ValueError:
            raise ValueError(
                f"Levels of quantiles must be numbers, got {listed(texts)}; {option('levels')} "
                "names them in the order of the columns."
            ) from None
        if max(levels) > 100:
            raise ValueError(
                f"Levels of quantiles must be in (0, 1), or percentages, got {listed(texts)}; of "
                "survival curves at such times evaluate has survival with event."
            )
        return [level / 100 for level in levels] if max(levels) >= 1 else levels


def stems_of(table: Table, pattern: str, target: str | None) -> dict[str, str]:
    """The names of several columns, the target no one of them, and what * stands for in each."""
    start, _, end = pattern.partition("*")
    if "*" in end:
        raise ValueError(f"A pattern of columns must have one *, got {pattern}.")
    found = {
        name: name.removeprefix(start).removesuffix(end)
        for name in table.columns
        if name.startswith(start) and name.endswith(end) and len(name) > len(start + end)
    }
    found.pop(target or "", None)
    if len(found) < 2:
        raise ValueError(
            f"{table.source}: expected at least two columns {pattern}, got "
            f"{listed(list(found)) or 'none'}; the columns are {listed(list(table.columns))}."
        )
    return found


def _number_in(name: str) -> str | None:
    """The number in the name of a column, if there is one alone."""
    found = re.findall(_NUMBER, str(name))
    return found[0] if len(found) == 1 else None


def _times(names: Sequence[str]) -> list[float]:
    """The times in names of columns, such as 365 of S_365."""
    numbers = [_number_in(name) for name in names]
    if not names or None in numbers:
        raise ValueError(
            "Columns of survival curves must have one number in each name, the time, such as "
            f"S_365, got {listed(names) or 'an array'}."
        )
    return [float(number or 0) for number in numbers]


def _letters_of_options(table: Table, columns: PredictionColumns, target: str) -> list[str] | None:
    """Letters that call the numbers of lists, if all targets are such; None if they are not."""
    cells = table.cells(columns.names[0])
    if len(columns.names) > 1 or not has_lists(cells):
        return None
    letters = list(string.ascii_uppercase[: max(map(len, cells))])
    if not all(isinstance(x, str) and x.strip() in letters for x in table.cells(target)):
        return None
    table.say(f"{table.called(target)}: A is the first of {columns.pattern}, and so on.")
    return letters
