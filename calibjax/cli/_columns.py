"""From columns to predictions, targets and the names of classes."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._numbers import TOLERANCE
from calibjax.cli import _options as options
from calibjax.cli._labels import labels_of_classes, labels_of_event
from calibjax.cli._read import Table, listed, read_table, stems
from calibjax.cli._terminal import BadInput
from calibjax.distributions import Bernoulli, Categorical, Empirical, Normal, Quantiles


@dataclasses.dataclass(frozen=True)
class Model:
    """The content of a file.

    Args:
        table: the columns.
        predictions: n predictions.
        targets: what was observed ``[n]``; labels are ``0 … m-1``.
        classes: the names of the m classes; None if they are numbers, or there are none.
        levels: the levels of quantiles; None for other predictions.
    """

    table: Table
    predictions: Distribution
    targets: np.ndarray
    classes: list[str] | None = None
    levels: list[float] | None = None

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
        return Model(self.table, ordered, places[self.targets], new)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns hold what, as the options of a command say it; a pattern has one ``*``.

    Args:
        target: the column of what was observed.
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
    """

    target: options.Target
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

    def read(self, path: Path, at_least: int = 2) -> Model:
        """The predictions and the targets of a file, which must have so many rows at least."""
        forms = {
            "--probs": (self.probs, self._categorical),
            "--prob": (self.prob, self._bernoulli),
            "--mean": (self.mean, self._normal),
            "--quantiles": (self.quantiles, self._quantiles),
            "--draws": (self.draws, self._empirical),
        }
        given = [(columns, form) for columns, form in forms.values() if columns is not None]
        if len(given) != 1:
            raise BadInput(
                f"One of the options {', '.join(forms)} must say which columns hold the "
                f"predictions, got {len(given)} of them."
            )
        for option, value, needed in (
            ("--sd", self.sd, "--mean"),
            ("--event", self.event, "--prob"),
            ("--levels", self.levels, "--quantiles"),
            ("--sort-quantiles", self.sort_quantiles or None, "--quantiles"),
            ("--normalize", self.normalize or None, "--probs"),
        ):
            if value is not None and forms[needed][0] is None:
                raise BadInput(f"{option} can be used only together with {needed}.")
        ((columns, form),) = given
        model = form(read_table(path), columns)
        n = len(model.predictions)
        if len(model.targets) != n:
            raise BadInput(
                f"{path}, column {self.target}: expected one target for each of {n} predictions, "
                f"got {len(model.targets)}."
            )
        if n < at_least:
            raise BadInput(f"{path}: expected at least {at_least} rows, got {n}.")
        return model

    def _categorical(self, table: Table, pattern: str) -> Model:
        probs, names = table.vectors(pattern, self.target)
        for name, column in zip(names or [pattern] * probs.shape[1], probs.T, strict=True):
            table.check(name, column >= 0, "a probability", column)
        sums = probs.sum(axis=1, dtype=float)
        if self.normalize:
            table.check(pattern, sums > 0, "a positive sum", sums)
        else:
            words = "a sum of 1 (--normalize divides by the sum)"
            table.check(pattern, np.abs(sums - 1) <= TOLERANCE, words, [f"{x:.5g}" for x in sums])
        predictions = Categorical(jnp.asarray(probs), normalize=self.normalize)
        classes = None if names is None else stems(pattern, names)
        labels = labels_of_classes(table, self.target, classes, probs.shape[1])
        return Model(table, predictions, *labels)

    def _bernoulli(self, table: Table, name: str) -> Model:
        probs = table.numbers(name)
        table.check(name, (probs >= 0) & (probs <= 1), "a probability")
        labels = labels_of_event(table, self.target, self.event)
        return Model(table, Bernoulli(jnp.asarray(probs)), *labels)

    def _normal(self, table: Table, name: str) -> Model:
        if self.sd is None:
            raise BadInput("--mean needs --sd, the column of the standard deviations.")
        mean, sd = table.numbers(name), table.numbers(self.sd)
        table.check(self.sd, sd > 0, "a positive standard deviation")
        predictions = Normal(jnp.asarray(mean), jnp.asarray(sd))
        return Model(table, predictions, table.numbers(self.target))

    def _quantiles(self, table: Table, pattern: str) -> Model:
        values, names = table.vectors(pattern, self.target)
        levels = self._levels(pattern, names)
        if len(levels) != values.shape[1]:
            raise BadInput(
                f"{table.path}, column {pattern}: expected quantiles at {len(levels)} levels, got "
                f"{values.shape[1]}."
            )
        order = np.argsort(levels, kind="stable")
        values, levels = values[:, order], [levels[k] for k in order]
        predictions = Quantiles(jnp.asarray(values), levels, sort=self.sort_quantiles)
        values = np.asarray(predictions.values)
        for k, (low, high) in enumerate(zip(values.T[:-1], values.T[1:], strict=True)):
            name = pattern if names is None else names[order[k + 1]]
            words = "at least the quantile at the level below (--sort-quantiles sorts each row)"
            table.check(name, high >= low, words, high)
        return Model(table, predictions, table.numbers(self.target), levels=levels)

    def _levels(self, pattern: str, names: list[str] | None) -> list[float]:
        """The levels of all columns, as given, or as their names say them; some are percentages."""
        if self.levels is not None:
            texts = self.levels.split(",")
        elif names is not None:
            texts = [stem.strip("_%") for stem in stems(pattern, names)]
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

    def _empirical(self, table: Table, pattern: str) -> Model:
        draws, _ = table.vectors(pattern, self.target)
        return Model(table, Empirical(jnp.asarray(draws)), table.numbers(self.target))
