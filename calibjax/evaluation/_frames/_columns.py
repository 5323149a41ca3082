"""From columns of a table to predictions, targets and the names of classes."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._distribution import Distribution
from calibjax._text import listed
from calibjax.distributions import Bernoulli, Categorical
from calibjax.evaluation._frames._labels import (
    labels_of_classes,
    labels_of_event,
    letters_of_options,
)
from calibjax.evaluation._frames._prediction_columns import Place
from calibjax.evaluation._frames._table import Table, stems

# A level in the name of a column, such as q0.1, q10 and 10%.
_NUMBER = r"\d+\.?\d*|\.\d+"


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a table.

    Args:
        table: the columns.
        place: which of them hold the predictions.
        target: the name of the column of what was observed.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels are ``0 … m-1``.
        classes: the names of the m classes; None if they are numbers, or there are none.
        events: beside survival curves, whether there was an event at the target, ``[n]``.
    """

    table: Table
    place: Place
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
        return None if self.place.levels is None else sorted(self.place.levels)


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
        place = self.place(table)
        if target in place.names:
            raise ValueError(
                f"{source}, column {target}: it cannot hold predictions and the targets."
            )
        if self.survival is not None:
            others = [*others, self.event]
        if self.drop_missing:
            used = [*place.names, target, *(name for name in others if name is not None)]
            absent = place.absent_by_column(table)
            table = table.without_missing(dict.fromkeys(used), place.classes or [], absent)
        predictions = place.read(table)
        n, classes, events = len(predictions), None, None
        if isinstance(predictions, Categorical):
            is_open = self.classes is None and place.classes is None
            targets, classes = labels_of_classes(
                table,
                target,
                letters_of_options(table, place.names, target) if is_open else self.classes,
                place.classes,
                predictions,
            )
        elif isinstance(predictions, Bernoulli):
            targets, classes = labels_of_event(table, target, self.event)
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
        return Model(table, place, target, predictions, targets, classes, events)

    @property
    def are_said(self) -> bool:
        """Whether anything says which columns hold the predictions."""
        kinds = self.probs, self.prob, self.mean, self.sd, self.quantiles, self.draws, self.survival
        return any(kind is not None for kind in kinds)

    def place(self, table: Table) -> Place:
        """Which columns of a table hold the predictions."""
        kinds = {
            "probs": self.probs,
            "prob": self.prob,
            "mean": self.mean,
            "quantiles": self.quantiles,
            "draws": self.draws,
            "survival": self.survival,
        }
        given = {kind: pattern for kind, pattern in kinds.items() if pattern is not None}
        if len(given) != 1:
            # Only some commands take survival curves.
            options = ", ".join(table.option(kind) for kind in kinds if kind != "survival")
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
                return Place(kind, [pattern], pattern)
            if self.sd is None:
                raise ValueError(
                    f"{table.option('mean')} needs {table.option('sd')}, the column of the "
                    "standard deviations."
                )
            return Place(kind, [pattern, self.sd], pattern)
        place, names = self._several(table, kind, pattern)
        if kind == "survival":
            if self.event is None:
                raise ValueError(
                    f"{table.option('survival')} needs {table.option('event')}, the column that "
                    "says whether there was an event."
                )
            return dataclasses.replace(place, times=_times(names or []))
        if kind == "probs":
            return dataclasses.replace(place, classes=names, normalize=self.normalize)
        if kind == "quantiles":
            levels = self._levels(table, names)
            return dataclasses.replace(place, levels=levels, sort=self.sort_quantiles)
        return place

    def _several(
        self, table: Table, kind: str, pattern: str | Sequence[str]
    ) -> tuple[Place, list[str] | None]:
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
            return Place(kind, names, f"{names[0]} … {names[-1]}"), names
        found = table.names_of(pattern, self.target)
        if found is None:
            within = table.names_within(pattern)
            return Place(kind, [pattern], pattern), within
        return Place(kind, found, pattern), stems(pattern, found)

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
