"""From columns of a table to predictions, targets and the names of classes."""

import dataclasses
import re
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibjax._base.text import listed
from calibjax._data import Distribution
from calibjax.distributions import Bernoulli, Categorical
from calibjax.frames._labels import (
    LabelError,
    Labels,
    checked_classes,
    read_events,
    read_labels,
)
from calibjax.frames._prediction_columns import PredictionColumns
from calibjax.frames._table import Table, has_lists, stems

# A level in the name of a column, such as q0.1, q10 and 10%.
_NUMBER = r"\d+\.?\d*|\.\d+"


# The options that name columns of predictions.
_KINDS = "probs", "prob", "mean", "quantiles", "draws", "survival"


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a table.

    Args:
        table: the columns.
        columns: which of them hold the predictions.
        target: the name of the column of what was observed.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels are ``0 … m-1``.
        classes: the names of the m classes; None if they are numbers, or there are none.
        events: beside survival curves, whether there was an event at the target, ``[n]``.
    """

    table: Table
    columns: PredictionColumns
    target: str
    predictions: Distribution
    targets: np.ndarray
    classes: list[Any] | None = None
    events: np.ndarray | None = None

    @property
    def row_names(self) -> np.ndarray:
        """What each row is called in the table."""
        names = self.table.row_names
        # Other arrays of an npz file may have other lengths, from which no rows are chosen.
        return names if len(names) == len(self.targets) else np.arange(len(self.targets))

    @property
    def levels(self) -> list[float] | None:
        """The levels of quantiles, ascending; None for other predictions."""
        return None if self.columns.levels is None else sorted(self.columns.levels)


@dataclasses.dataclass(frozen=True)
class ColumnNames:
    """Which columns hold what; a pattern has one ``*``, and a list names each of several columns.

    Args:
        target: the column of what was observed; None where nothing was observed yet.
        probs: the columns of class probabilities, a pattern or a list.
        prob: the column of the probability of an event.
        event: the label of this event; None if labels say it, such as yes and no.  Of survival it
            is the column that says whether there was an event.
        mean: the column of means of normal predictions.
        sd: the column of their standard deviations.
        quantiles: the columns of quantiles, a pattern or a list.
        levels: the levels of the quantiles, a list, or a text with commas; None if column names
            hold them.
        sort_quantiles: whether to sort the quantiles of each row, which may cross.
        draws: the columns of draws, a pattern or a list.
        survival: the columns of survival at some times, which their names hold.
        normalize: whether to divide each row of class probabilities by its sum.
        drop_missing: whether to leave out rows that miss a value of a column that is used.
        classes: the names of the classes in the order of the columns of probs; None if names of
            columns hold them.
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
        if self.target is None:
            raise ValueError(
                f"{table.option('target')} must say which column holds what was observed."
            )
        source, target = table.source, self.target
        table.check_name(target)
        columns = self.prediction_columns(table)
        if target in columns.names:
            raise ValueError(
                f"{source}, column {target}: it cannot hold predictions and the targets."
            )
        if self.survival is not None:
            others = [*others, self.event]
        if self.drop_missing:
            used = [*columns.names, target, *(name for name in others if name is not None)]
            absent = columns.absent_by_column(table)
            table = table.without_missing(dict.fromkeys(used), columns.classes or [], absent)
        predictions = columns.read(table)
        n, classes, events = len(predictions), None, None
        if isinstance(predictions, Categorical):
            names, said = columns.classes, self.classes
            if said is None and names is None:
                said = _letters_of_options(table, columns, target)
            is_said = said is not None
            if is_said:
                names = checked_classes("classes", said, predictions.probs.shape[1])
            targets, classes = _labels(
                table, target, lambda x: read_labels(x, names, predictions, is_said)
            )
        elif isinstance(predictions, Bernoulli):
            targets, classes = _labels(table, target, lambda x: read_events(x, self.event))
            if self.event is not None and not targets.any():
                # It may be rare, or have another name.
                table.say(f"{source}, column {target}: no row is {self.event}.")
        else:
            targets = table.numbers(target)
        if self.survival is not None and self.event is not None:
            events = table.truths(self.event)
        if len(targets) != n:
            raise ValueError(
                f"{source}, column {target}: expected one target for each of {n} predictions, got "
                f"{len(targets)}."
            )
        if n < at_least:
            raise ValueError(f"{source}: expected at least {at_least} rows, got {n}.")
        return Model(table, columns, target, predictions, targets, classes, events)

    def _kinds(self) -> dict[str, Any]:
        """What says which columns hold the predictions, by the kind of these."""
        kinds = {kind: getattr(self, kind) for kind in _KINDS}
        return {kind: pattern for kind, pattern in kinds.items() if pattern is not None}

    @property
    def are_said(self) -> bool:
        """Whether anything says which columns hold the predictions."""
        return bool(self._kinds()) or self.sd is not None

    def prediction_columns(self, table: Table) -> PredictionColumns:
        """Which columns of a table hold the predictions."""
        given = self._kinds()
        if len(given) != 1:
            # Only some commands take survival curves.
            options = ", ".join(table.option(kind) for kind in _KINDS if kind != "survival")
            raise ValueError(
                f"One of the options {options} must say which columns hold the predictions, got "
                f"{len(given)} of them."
            )
        for option, value, needed in (
            ("sd", self.sd, "mean"),
            ("event", self.event, "survival" if self.survival is not None else "prob"),
            ("levels", self.levels, "quantiles"),
            ("sort_quantiles", self.sort_quantiles or None, "quantiles"),
            ("normalize", self.normalize or None, "probs"),
            ("classes", self.classes, "probs"),
        ):
            if value is not None and needed not in given:
                raise ValueError(
                    f"{table.option(option)} can be used only together with {table.option(needed)}."
                )
        ((kind, pattern),) = given.items()
        if kind in ("prob", "mean"):
            if not isinstance(pattern, str):
                raise ValueError(f"{table.option(kind)} must be the name of a column.")
            if kind == "prob":
                return PredictionColumns(kind, [pattern], pattern)
            if self.sd is None:
                raise ValueError(
                    f"{table.option('mean')} needs {table.option('sd')}, the column of the "
                    "standard deviations."
                )
            return PredictionColumns(kind, [pattern, self.sd], pattern)
        columns, names = self._several(table, kind, pattern)
        if kind == "survival":
            if self.event is None:
                raise ValueError(
                    f"{table.option('survival')} needs {table.option('event')}, the column that "
                    "says whether there was an event."
                )
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
        found = table.names_of(pattern, self.target)
        if found is None:
            within = table.names_within(pattern)
            return PredictionColumns(kind, [pattern], pattern), within
        return PredictionColumns(kind, found, pattern), stems(pattern, found)

    def _levels(self, table: Table, names: Sequence[str] | None) -> list[float]:
        """The levels of all columns, as given, or as their names say them; some are percentages."""
        if self.levels is not None:
            given = self.levels
            texts = given.split(",") if isinstance(given, str) else list(map(str, given))
        elif names is not None:
            numbers = [re.findall(_NUMBER, str(name)) for name in names]
            texts = [
                x[0] if len(x) == 1 else str(name) for x, name in zip(numbers, names, strict=True)
            ]
        else:
            raise ValueError(
                f"{table.option('quantiles')} needs {table.option('levels')} for an array, such "
                f"as {table.option('levels', '0.1,0.5,0.9')}."
            )
        try:
            levels = [float(text) for text in texts]
        except ValueError:
            raise ValueError(
                f"Levels of quantiles must be numbers, got {listed(texts)}; "
                f"{table.option('levels')} names them in the order of the columns."
            ) from None
        if max(levels) > 100:
            raise ValueError(
                f"Levels of quantiles must be in (0, 1), or percentages, got {listed(texts)}; of "
                "survival curves at such times evaluate has survival with event."
            )
        return [level / 100 for level in levels] if max(levels) >= 1 else levels


def _times(names: Sequence[str]) -> list[float]:
    """The times in names of columns, such as 365 of S_365."""
    numbers = [re.findall(_NUMBER, str(name)) for name in names]
    if not names or any(len(found) != 1 for found in numbers):
        raise ValueError(
            "Columns of survival curves must have one number in each name, the time, such as "
            f"S_365, got {listed(names) or 'an array'}."
        )
    return [float(found[0]) for found in numbers]


def _letters_of_options(table: Table, columns: PredictionColumns, target: str) -> list[str] | None:
    """Letters that call the numbers of lists, if all targets are such; None if they are not."""
    cells = table.cells(columns.names[0])
    if len(columns.names) > 1 or not has_lists(cells):
        return None
    letters = list(string.ascii_uppercase[: max(map(len, cells))])
    if not all(isinstance(x, str) and x.strip() in letters for x in table.cells(target)):
        return None
    table.say(f"{table.source}, column {target}: A is the first of {columns.pattern}, and so on.")
    return letters


def _labels(table: Table, name: str, read: Callable[[np.ndarray], Labels]) -> Labels:
    """Labels of a column; errors name the table, the column and the row."""
    try:
        return read(table.labels(name))
    except LabelError as error:
        option = table.option
        advice = {
            None: "",
            "classes": ": name the columns by the classes, such as p_cat and p_dog with "
            f"{option('probs', 'p_*')}; of lists write the indices of options, from 0, or A, B, …",
            "event": f": {option('event')} must say which of them is the event",
            "distribution": f"; for real targets take {option('mean')} and {option('sd')}, "
            f"{option('quantiles')} or {option('draws')}",
        }
        message = f"expected {error.expected}, got {error.got}{advice[error.needs]}."
        if error.row is not None:
            if error.got.strip("'").startswith("-1"):
                message = f"{message[:-1]}; if -1 stands for no label, leave out its rows."
            if not error.got.split(":")[0].strip("' "):
                dropping = table.option("drop_missing", True)
                message = f"expected a label, got an empty text; {dropping} leaves out its row."
            table.fail(name, error.row, message)
        raise ValueError(f"{table.source}, column {name}: {message}") from None
