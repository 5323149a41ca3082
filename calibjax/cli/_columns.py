"""Which columns of files hold what, as the options of a command say it."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from calibjax import frames
from calibjax._base.text import listed
from calibjax._data.distribution import as_labels
from calibjax.distributions import Categorical
from calibjax.frames import Model, Table
from calibjax.frames.files import read_files, rows_where


class Columns(frames.Columns):
    """`frames.Columns` of files."""

    #: What is between columns of text, a character or "tab"; None if the file says it.
    separator: str | None = None
    #: What is before decimals, "." or ","; None if the file says it.
    decimal: str | None = None
    #: A condition of SQL that the rows fulfil.
    where: str | None = None

    def read(self, *paths: Path, at_least: int = 2, others: Sequence[str | None] = ()) -> Model:
        """The predictions and the targets of files, whose rows are joined, as `of` reads them."""
        table = self.table(*paths)
        if self.where is not None:
            table = rows_where(table, self.where)
        return frames.Columns(**self.given).in_table(table).of(table, at_least, others)

    def table(self, *paths: Path) -> Table:
        """The columns of files, whose rows are joined."""
        found = read_files(paths, self.separator, self.decimal, on_command_line=True)
        # Names of files may not be UTF-8.
        source = os.fsencode(found.source).decode(errors="backslashreplace")
        return dataclasses.replace(found, source=source)


def in_order(model: Model, classes: list[str] | None) -> Model:
    """The model with its classes in another order.

    Raises:
        ValueError: these are other classes.
    """
    if model.classes == classes:
        return model
    if sorted(model.classes or []) != sorted(classes or []):
        ours, theirs = listed(classes or []), listed(model.classes or [])
        words = f"expected the classes {ours} as in the first file, got {theirs}"
        raise ValueError(f"{model.table.source}: {words}.")
    old, new = list(model.classes or []), list(classes or [])
    probs = np.asarray(as_labels(model.predictions).label_probabilities())
    ordered = Categorical(jnp.asarray(probs[:, [old.index(name) for name in new]]))
    targets = np.array([new.index(name) for name in old], np.int32)[model.targets]
    return dataclasses.replace(model, predictions=ordered, targets=targets, classes=new)


def on_common_rows(models: Sequence[Model]) -> list[Model]:
    """The models on the rows that all of them have, said if it is not all that one has."""
    rows = functools.reduce(np.intersect1d, (x.table.rows for x in models))
    if all(len(x.table) == len(rows) for x in models):
        return [*models]
    models[0].table.say(f"The models are compared on the {len(rows)} rows that all files have.")
    return [x.taken(np.flatnonzero(np.isin(x.table.rows, rows))) for x in models]


def with_same_targets(first: Model, other: Model, questions: str | None = None) -> Model:
    """The other model, with classes in the order of the first; an error unless targets agree.

    Where a column names the question of each row, other answers may be right: only it must agree.
    """
    other = in_order(other, first.classes)
    if not np.array_equal(other.table.rows, first.table.rows):
        raise ValueError(
            f"{other.table.source}: expected the {len(first.table)} rows of {first.table.source}, "
            f"got {len(other.table)} rows; join the files first, so that all have the same rows in "
            "the same order."
        )
    of_first = f"as in this row of {first.table.source}"
    hint = "; files must have the same rows in the same order"
    if questions is not None and first.columns.kind == "prob":
        same = np.asarray(first.table.cells(questions) == other.table.cells(questions))
        other.table.check(questions, same, f"the same value {of_first}", hint=hint)
        return other
    if first.columns.kind == "prob":
        hint += "; of answers to the same questions --cluster names the question"
    is_same = other.targets == first.targets
    other.table.check(other.target, is_same, f"the same target {of_first}", hint=hint)
    return other
