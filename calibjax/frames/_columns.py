"""From columns of a table to predictions, targets, classes, weights, clusters, times, groups."""

import dataclasses
import datetime
import re
import string
from collections.abc import Sequence
from typing import Any, Self, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.check import check_flag
from calibjax._base.text import listed
from calibjax._data.column_options import FLAGS, OPTIONS, ColumnOptions, Horizon
from calibjax._data.data import Data, RowOptions
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.typed_column import TypedColumn, numbered
from calibjax.distributions import Normal
from calibjax.frames._array_conversion import as_floats
from calibjax.frames._labels import read_labels
from calibjax.frames._prediction_columns import PredictionColumns
from calibjax.frames._table import Table, has_lists, table_of_arrays

_DAY = datetime.timedelta(days=1)
_EPOCH = datetime.datetime(1970, 1, 1)


def row_options(
    table: Table,
    weights: Sequence[str] = (),
    clusters: str | None = None,
    times: str | None = None,
    horizon: Horizon = None,
) -> RowOptions:
    """How much each row counts, and which rows may depend on each other, as columns say it.

    Names of clusters become integers, dates become days, and the horizon has their units.
    """
    option, found = table.option, RowOptions()
    for name in weights:
        least = table.array(name).reshape(len(table), -1).min(axis=1)
        table.check(name, least >= 0, "a weight, which is not negative")
    if weights:
        numbers = np.column_stack([table.array(name) for name in weights])
        found["weights"] = numbers[:, 0] if numbers.shape[1] == 1 else numbers
    if clusters is not None and times is not None:
        raise ValueError(f"{option('clusters')} and {option('times')} cannot be used together.")
    if horizon is not None and times is None:
        raise ValueError(f"{option('horizon')} can be used only together with {option('times')}.")
    if clusters is not None:
        found["clusters"] = cluster_numbers(table.typed(clusters))
    if times is not None:
        values, are_dates = read_times(table.typed(times))
        table.check(times, np.isfinite(values), "a number, or a date such as 2026-03-31")
        found |= {"times": values, "horizon": in_units(horizon, are_dates)}
    return found


def read_rows(horizon: Horizon = None, **arrays: Any) -> RowOptions:
    """`row_options` of arrays ``[n]`` of many types."""
    given = {name: x for name, x in arrays.items() if x is not None}
    if not given:
        return RowOptions(horizon=in_units(horizon, True))
    names: dict[str, Any] = {name: name for name in given}
    names |= {"weights": ["weights"]} if "weights" in given else {}
    return row_options(table_of_arrays(**given), **names, horizon=horizon)


def groups_of(table: Table, names: Sequence[str], read: bool = True) -> dict[str, np.ndarray]:
    """Columns with None or NaN where a value is missing.

    If `read`, numbers in a text file are numbers; see `Table.untyped`.
    """
    found = {name: table.one_value(name) for name in names}
    for name, cells in found.items():
        if cells.dtype == object:
            is_empty = np.array([isinstance(x, str) and not x.strip() for x in cells], bool)
            found[name] = np.where(is_empty, np.array(None), cells)
    return {name: table.by_type(name, x) for name, x in found.items()} if read else found


def cluster_numbers(names: TypedColumn) -> np.ndarray:
    """The number of the cluster of each row, in the order of their names."""
    return numbered(names.values)[1].astype(np.int32)


def read_times(column: TypedColumn) -> tuple[np.ndarray, bool]:
    """Numbers ``[n]``, NaN where a value is none, and whether they count days since 1970.

    Texts are all dates, or all numbers.
    """
    values = column.values
    if values.dtype.kind == "M":
        return (values - np.datetime64(0, "us")) / np.timedelta64(1, "D"), True
    if values.dtype.kind != "O":
        return values.astype(np.float64), False
    texts, rows = numbered(values)
    dates = np.array([_days(text) for text in texts.tolist()])[rows], True
    numbers = as_floats(texts)[rows], False
    return max(dates, numbers, key=lambda found: np.isfinite(found[0]).sum())


def as_iso(text: str) -> str:
    """A date such as 31.3.2026 or 2026/3/31 as 2026-03-31, a time with an offset as that of UTC.

    With points the day is always first.
    """
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{4})", text.strip())
    if found is not None:
        return "{2}-{1:0>2}-{0:0>2}".format(*found.groups())
    found = re.match(r"\s*([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})(?![0-9])", text)
    if found is not None:
        text = "{}-{:0>2}-{:0>2}".format(*found.groups()) + text[found.end() :]
    try:
        time = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return text if time.tzinfo is None else str(time.astimezone(datetime.UTC))[: -len("+00:00")]


def _days(text: str) -> float:
    """Days since 1970 of a date or a time in the forms of ISO 8601; NaN of other texts."""
    try:
        return (datetime.datetime.fromisoformat(as_iso(text).strip()) - _EPOCH) / _DAY
    except ValueError:
        return np.nan


def in_units(horizon: Horizon, are_dates: bool) -> Any:
    """A horizon as a number of days, if it is a difference of times."""
    if isinstance(horizon, np.timedelta64):
        horizon = horizon.astype("timedelta64[us]").item()
    if not isinstance(horizon, datetime.timedelta):
        return horizon
    if not are_dates:
        raise TypeError(f"horizon must be a number, as times are, got {horizon!r}.")
    return horizon / _DAY


# A level in the name of a column, such as q0.1, q10 and 10%.
_NUMBER = r"\d+\.?\d*|\.\d+"
# The kinds whose columns have such numbers in their names.
_IN_NAMES = {"quantiles": _NUMBER, "survival": _NUMBER}
# The options that name columns of predictions.
_KINDS = "probs", "prob", "mean", "quantiles", "draws", "survival"
# The options that name columns of what is known of rows.
_OF_ROWS = "censored", "clusters", "times"
# What files of logs of lm-evaluation-harness are read as.
PROBS, TARGET, ANSWERS = "option_probabilities", "target", "filtered_resps"
PROBS_PER_LETTER = f"{PROBS}_norm"
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
            `IntervalCensored`.
        classes: the names of the m classes; None if they are numbers, or there are none.
    """

    table: Table
    columns: PredictionColumns
    target: str
    predictions: Distribution
    targets: Any
    classes: list[Any] | None = None

    def taken(self, order: np.ndarray) -> Self:
        """Some rows, or all in another order."""
        predictions = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[order]), self.predictions)
        taken = {"table": self.table.taken(order), "targets": self.targets[order]}
        return dataclasses.replace(self, predictions=predictions, **taken)


def given_columns(columns: ColumnOptions) -> dict[str, Any]:
    """The options that are not left at their defaults; a TypeError for others."""
    for name in columns.keys() - ColumnOptions.__annotations__.keys():
        raise TypeError(f"unknown argument {name}; there are {listed(OPTIONS)}.")
    return {x: y for x, y in columns.items() if not (y is None or y is False)}


def _names(option: str, given: object) -> Sequence[str]:
    """The names of columns, of which one may stand alone."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(x, str) for x in names):
        raise TypeError(
            f"{option} must be a list of names of columns of data, such as ['region'], got "
            f"{type(given).__name__}."
        )
    return names


class Columns:
    """Which columns of a table hold what, by the options of `ColumnOptions`.

    A pattern has one ``*``, and a list names each of several columns.
    """

    def __init__(self, **options: Unpack[ColumnOptions]) -> None:
        given = given_columns(options)
        for name in _OF_ROWS:
            if not isinstance(given.get(name, ""), str):
                kind = type(given[name]).__name__
                raise TypeError(f"{name} must be the name of a column of data, got {kind}.")
        for flag in FLAGS:
            check_flag(flag, given.get(flag, False))
        self.groups, self.weights = (_names(x, given.get(x, [])) for x in ("groups", "weights"))
        self.given = given
        # What says which columns hold the predictions, by the kind of these.
        self._kinds = {kind: x for kind, x in given.items() if kind in _KINDS}
        self.target: str | None = given.get("target")
        self.event: str | None = given.get("event")
        self.drop_missing: bool = given.get("drop_missing", False)

    def of(self, table: Table, at_least: int = 2, others: Sequence[str | None] = ()) -> Model:
        """The predictions and the targets of a table.

        Args:
            table: the columns.
            at_least: how many rows there must be.
            others: columns of which `drop_missing` leaves out missing values, beside those that
                options name.
        """
        target, event = self.target, self.event
        if target is None:
            option = table.option("target")
            raise ValueError(f"{option} must name the outcome column.")
        table.cells(target)
        columns = self.prediction_columns(table)
        if target in columns.names:
            table.refuse(target, "it cannot hold predictions and the targets")
        events = event if columns.kind == "survival" else None
        if self.drop_missing:
            used = [*columns.names, target, *map(self.given.get, _OF_ROWS), *others, events]
            used += self.weights
            names = dict.fromkeys(name for name in used if name is not None)
            absent = columns.absent_by_column(table)
            table = table.without_missing(names, columns.classes or [], absent)
        predictions, classes = columns.read(table), None
        targets: Targets
        if isinstance(predictions, Labels):
            said = self.given.get("classes")
            if said is None and columns.classes is None:
                said = _letters_of_options(table, columns, target)
            targets, classes = read_labels(table, target, predictions, said, columns.classes, event)
            if event is not None and not targets.any():
                # It may be rare, or have another name.
                table.say(f"{table.called(target)}: no row is {event}.")
        else:
            targets = table.numbers(target)
        if events is not None:
            targets = IntervalCensored(targets, np.where(table.truths(events), targets, np.inf))
        if (n := len(table)) < at_least:
            source = table.source or "predictions"
            raise ValueError(f"{source}: expected at least {at_least} rows, got {n}.")
        return Model(table, columns, target, predictions, targets, classes)

    def in_table(self, table: Table) -> "Columns":
        """These, or what a log of lm-evaluation-harness calls its columns if nothing names any."""
        probs = self.given.get("probs")
        if PROBS in table.columns and (not self.are_said or probs == PROBS_PER_LETTER):
            if not self.drop_missing:
                option = table.option("drop_missing", True)
                words = f"a finite log-likelihood in {ANSWERS} ({option} leaves out others)"
                table.check_present(PROBS, words)
            said = {"probs": probs or PROBS, "target": self.target or TARGET}
            return Columns(**self.given | said)
        if not self.are_said and ANSWERS in table.columns:
            raise ValueError(
                f"{table.source}: expected a log of questions of multiple choice, with the "
                f"log-likelihood of each option in {ANSWERS}, got none; of other logs "
                f"{table.option('prob')} or {table.option('probs')} and {table.option('target')} "
                "name columns."
            )
        return self

    def data(self, model: Model) -> Data:
        """The data set of a model, with what columns of its table say of the rows."""
        table, targets = model.table, model.targets
        censored = self.given.get("censored")
        if censored is not None:
            if not isinstance(model.predictions, Normal):
                option, mean = table.option("censored"), table.option("mean")
                raise ValueError(f"{option} can be used only together with {mean}.")
            targets = IntervalCensored(targets, np.where(table.truths(censored), np.inf, targets))
        of_rows: dict[str, Any] = {x: self.given.get(x) for x in (*_OF_ROWS[1:], "horizon")}
        of_rows["weights"] = self.weights
        groups = groups_of(table, self.groups) or None
        return Data(model.predictions, targets, **row_options(table, **of_rows)).replace(
            groups=groups, classes=model.classes, row_names=table.row_names
        )

    @property
    def are_said(self) -> bool:
        """Whether anything says which columns hold the predictions."""
        return bool(self._kinds) or "sd" in self.given

    def prediction_columns(self, table: Table) -> PredictionColumns:
        """Which columns of a table hold the predictions."""
        kinds, option = self._kinds, table.option
        if len(kinds) != 1:
            # Only some commands take survival curves.
            options = ", ".join(option(kind) for kind in _KINDS if kind != "survival")
            raise ValueError(
                f"One of the options {options} must say which columns hold the predictions, got "
                f"{len(kinds)} of them."
            )
        ((kind, pattern),) = kinds.items()
        together = _TOGETHER | {"normalize": "probs", "classes": "probs", "event": "prob"}
        if kind in ("prob", "survival"):
            together |= {"event": kind, "classes": "prob"}
        if kind not in ("prob", "probs"):
            together["percent"] = "prob"
        for name, needed in together.items():
            if name in self.given and needed != kind:
                raise ValueError(f"{option(name)} can be used only together with {option(needed)}.")
        if kind in ("prob", "mean"):
            if not isinstance(pattern, str):
                raise ValueError(f"{option(kind)} must be the name of a column.")
            beside = [self.given["sd"]] if "sd" in self.given else []
            if kind == "mean" and not beside:
                words = "the column of the standard deviations"
                raise ValueError(f"{option('mean')} needs {option('sd')}, {words}.")
            percent: bool = self.given.get("percent", False)
            return PredictionColumns(kind, [pattern, *beside], pattern, percent=percent)
        columns, names = self._several(table, kind, pattern)
        if kind == "survival":
            if self.event is None:
                words = "the column that says whether there was an event"
                raise ValueError(f"{option(kind)} needs {option('event')}, {words}.")
            return dataclasses.replace(columns, times=_times(names or []))
        if kind == "probs":
            divided = {x: self.given.get(x, False) for x in ("normalize", "percent")}
            return dataclasses.replace(columns, classes=names, **divided)
        if kind == "quantiles":
            levels = self._levels(table, names, columns.names)
            sort: bool = self.given.get("sort_quantiles", False)
            return dataclasses.replace(columns, levels=levels, sort=sort)
        return columns

    def _several(
        self, table: Table, kind: str, pattern: str | Sequence[str]
    ) -> tuple[PredictionColumns, list[str] | None]:
        """Several columns or an array, and what is called by each column of it."""
        is_name = isinstance(pattern, str) and ("*" in pattern or pattern in table.columns)
        if isinstance(pattern, str) and "," in pattern and not is_name:
            pattern = [name.strip() for name in pattern.split(",")]
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
        stems = stems_of(table, pattern, self.target, _IN_NAMES.get(kind, r"\d+"))
        others = [name for name, stem in stems.items() if not stem[-1:].isdigit()]
        if kind == "draws" and 0 < len(others) < len(stems):
            raise ValueError(
                f"{table.source}: members {pattern} must all end in a number, got "
                f"{listed(others)}: write a pattern, or in Python a list, of the others."
            )
        return PredictionColumns(kind, list(stems), pattern), list(stems.values())

    def _levels(
        self, table: Table, names: Sequence[str] | None, columns: Sequence[str]
    ) -> list[float]:
        """The levels of all columns, as given, or as their names say them.

        Names have percentages if they have percent signs, or numbers of which one is 50 or more.
        """
        option = table.option
        given = self.given.get("levels")
        if given is not None:
            texts = given.split(",") if isinstance(given, str) else list(map(str, given))
        elif names is not None:
            texts = [_number_in(name) or str(name) for name in names]
        else:
            example = option("levels", "0.1,0.5,0.9")
            raise ValueError(f"{option('quantiles')} of an array needs levels, such as {example}.")
        try:
            levels = [float(text) for text in texts]
        except ValueError:
            raise ValueError(
                f"Levels of quantiles must be numbers, got {listed(texts)}; {option('levels')} "
                "names them in the order of the columns."
            ) from None
        is_percent = any("%" in name for name in columns) or 50 <= max(levels) <= 100
        if given is None and is_percent:
            levels = [level / 100 for level in levels]
        if not all(0 < level < 1 for level in levels):
            hint = "divide percentages by 100"
            if given is None:
                hint = f"{option('levels')} gives them in the order of the columns"
            if max(levels) > 100:
                hint = "of survival curves at such times evaluate has survival with event"
            raise ValueError(f"Levels of quantiles must be in (0, 1), got {listed(texts)}; {hint}.")
        return levels


def stems_of(
    table: Table, pattern: str, target: str | None, number: str = r"\d+"
) -> dict[str, str]:
    """The names of several columns, the target no one of them, and what * stands for in each.

    A `number`, which is a regular expression, is whole, also if the pattern has a part of it.
    """
    start, _, end = pattern.partition("*")
    if "*" in end:
        raise ValueError(f"A pattern of columns must have one *, got {pattern}.")
    found = {
        name: _stem(name, len(start), len(name) - len(end), number)
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


def _stem(name: str, start: int, end: int, number: str) -> str:
    for part in re.finditer(number, name):
        first, last = part.span()
        start = first if first < start < last else start
        end = last if first < end < last else end
    return name[start:end]


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
