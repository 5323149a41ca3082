"""From columns to predictions, targets and the names of classes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import typer

from calibjax._distribution import Distribution
from calibjax.cli import _options as options
from calibjax.cli._files import read_tables
from calibjax.cli._harness import PROBS, TARGET
from calibjax.cli._labels import labels_of_classes, labels_of_event
from calibjax.cli._places import Place
from calibjax.cli._table import Table, listed, stems
from calibjax.cli._terminal import BadInput
from calibjax.distributions import Bernoulli, Categorical


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a file.

    Args:
        table: the columns.
        place: which of them hold the predictions.
        target: the name of the column of what was observed.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels are ``0 … m-1``.
        classes: the names of the m classes; None if they are numbers, or there are none.
    """

    table: Table
    place: Place
    target: str
    predictions: Distribution
    targets: np.ndarray
    classes: list[str] | None = None

    @property
    def levels(self) -> list[float] | None:
        """The levels of quantiles, ascending; None for other predictions."""
        return None if self.place.levels is None else sorted(self.place.levels)

    def in_order(self, classes: list[str] | None) -> "Model":
        """The model with its classes in another order.

        Raises:
            BadInput: these are other classes.
        """
        if self.classes == classes:
            return self
        if sorted(self.classes or []) != sorted(classes or []):
            raise BadInput(
                f"{self.table.path}: expected the classes {listed(classes or [])} as in the first "
                f"file, got {listed(self.classes or [])}."
            )
        old, new = list(self.classes or []), list(classes or [])
        probs = np.asarray(self.predictions.label_probabilities())
        ordered = Categorical(jnp.asarray(probs[:, [old.index(name) for name in new]]))
        places = np.array([new.index(name) for name in old], np.int32)
        return dataclasses.replace(
            self, predictions=ordered, targets=places[self.targets], classes=new
        )


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns hold what, as the options of a command say it; a pattern has one ``*``.

    Args:
        target: the column of what was observed; None where nothing was observed yet.
        probs: a pattern of the columns of class probabilities.
        prob: the column of the probability of an event.
        event: the label of this event; None if labels say it, such as yes and no.
        mean: the column of means of normal predictions.
        sd: the column of their standard deviations.
        quantiles: a pattern of the columns of quantiles.
        levels: the levels of the quantiles, separated by commas; None if column names hold them.
        sort_quantiles: whether to sort the quantiles of each row, which may cross.
        draws: a pattern of the columns of draws.
        normalize: whether to divide each row of class probabilities by its sum.
        separator: what is between columns of text, a character or "tab"; None if the file says it.
        decimal: what is before decimals, "." or ","; None if the file says it.
        where: a condition of SQL that the rows fulfil.
        drop_missing: whether to leave out rows that miss a value of a column that is used.
    """

    target: options.Target = None
    probs: options.Probs = None
    prob: options.Prob = None
    event: options.Event = None
    mean: options.Mean = None
    sd: options.Sd = None
    quantiles: options.QuantileColumns = None
    levels: options.Levels = None
    sort_quantiles: options.SortQuantiles = False
    draws: options.Draws = None
    normalize: options.Normalize = False
    separator: options.Separator = None
    decimal: options.Decimal = None
    where: options.Where = None
    drop_missing: options.DropMissing = False

    def read(self, *paths: Path, at_least: int = 2, others: Sequence[str | None] = ()) -> Model:
        """The predictions and the targets of files.

        Args:
            paths: the files, whose rows are joined.
            at_least: how many rows there must be.
            others: columns of which `drop_missing` leaves out missing values, too.
        """
        table = self.table(*paths)
        if not self.are_said and PROBS in table.columns:
            log = dataclasses.replace(self, probs=PROBS, target=self.target or TARGET)
            return log._model(table, at_least, others)
        return self._model(table, at_least, others)

    def _model(self, table: Table, at_least: int, others: Sequence[str | None]) -> Model:
        """The same of a table that was read."""
        target = self._target()
        if self.where is not None:
            table = _said(table, table.where(self.where), f"where {self.where}")
        path, place = table.path, self.place(table)
        if target in place.names:
            raise BadInput(f"{path}, column {target}: it cannot hold predictions and the targets.")
        if self.drop_missing:
            used = [*place.names, target, *(name for name in others if name is not None)]
            kept = table.without_missing(dict.fromkeys(used), place.classes or [])
            table = _said(table, kept, "without missing values")
        predictions = place.read(table)
        n, classes = len(predictions), None
        if isinstance(predictions, Categorical):
            targets, classes = labels_of_classes(
                table, target, place.classes, predictions.probs.shape[1]
            )
        elif isinstance(predictions, Bernoulli):
            targets, classes = labels_of_event(table, target, self.event)
        else:
            targets = table.numbers(target)
        if len(targets) != n:
            raise BadInput(
                f"{path}, column {target}: expected one target for each of {n} predictions, got "
                f"{len(targets)}."
            )
        if n < at_least:
            raise BadInput(f"{path}: expected at least {at_least} rows, got {n}.")
        return Model(table, place, target, predictions, targets, classes)

    def table(self, *paths: Path) -> Table:
        """The columns of files, whose rows are joined."""
        separator = _TAB.get(self.separator or "", self.separator)
        if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
            raise BadInput(f"--separator must be one character, or tab, got {separator!r}.")
        if self.decimal not in (None, ".", ","):
            raise BadInput(f"--decimal must be . or a comma, got {self.decimal!r}.")
        return read_tables(paths, separator, self.decimal)

    @property
    def are_said(self) -> bool:
        """Whether any option says which columns hold the predictions."""
        return any((self.probs, self.prob, self.mean, self.sd, self.quantiles, self.draws))

    def _target(self) -> str:
        if self.target is None:
            raise BadInput("--target must say which column holds what was observed.")
        return self.target

    def place(self, table: Table) -> Place:
        """Which columns of a file hold the predictions."""
        kinds = {
            "probs": self.probs,
            "prob": self.prob,
            "mean": self.mean,
            "quantiles": self.quantiles,
            "draws": self.draws,
        }
        given = {kind: pattern for kind, pattern in kinds.items() if pattern is not None}
        if len(given) != 1:
            options = ", ".join(f"--{kind}" for kind in kinds)
            raise BadInput(
                f"One of the options {options} must say which columns hold the predictions, got "
                f"{len(given)} of them."
            )
        for option, value, needed in (
            ("--sd", self.sd, "mean"),
            ("--event", self.event, "prob"),
            ("--levels", self.levels, "quantiles"),
            ("--sort-quantiles", self.sort_quantiles or None, "quantiles"),
            ("--normalize", self.normalize or None, "probs"),
        ):
            if value is not None and needed not in given:
                raise BadInput(f"{option} can be used only together with --{needed}.")
        ((kind, pattern),) = given.items()
        if kind == "prob":
            return Place(kind, [pattern], pattern)
        if kind == "mean":
            if self.sd is None:
                raise BadInput("--mean needs --sd, the column of the standard deviations.")
            return Place(kind, [pattern, self.sd], pattern)
        names = table.names_of(pattern, self.target)
        stem = None if names is None else stems(pattern, names)
        place = Place(kind, names or [pattern], pattern)
        if kind == "probs":
            return dataclasses.replace(place, classes=stem, normalize=self.normalize)
        if kind == "quantiles":
            levels = self._levels(stem)
            return dataclasses.replace(place, levels=levels, sort=self.sort_quantiles)
        return place

    def _levels(self, stem: list[str] | None) -> list[float]:
        """The levels of all columns, as given, or as their names say them; some are percentages."""
        if self.levels is not None:
            texts = self.levels.split(",")
        elif stem is not None:
            texts = [text.strip("_%") for text in stem]
        else:
            raise BadInput("--quantiles needs --levels for an array, such as --levels 0.1,0.5,0.9.")
        try:
            levels = [float(text) for text in texts]
        except ValueError:
            raise BadInput(
                f"Levels of quantiles must be numbers, got {listed(texts)}; --levels names them in "
                "the order of the columns."
            ) from None
        return [level / 100 for level in levels] if max(levels) >= 1 else levels


# How people write a tab on a command line.
_TAB = {"tab": "\t", "\\t": "\t"}


def _said(table: Table, kept: Table, words: str) -> Table:
    """Some rows of a table, after saying on stderr how many they are."""
    typer.echo(f"{table.path}: {len(kept)} of {len(table)} rows are used, {words}.", err=True)
    return kept
