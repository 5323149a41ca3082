"""Labels from a column of a table; errors name the table, the column and the row."""

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibjax.distributions import Categorical
from calibjax.evaluation._frames._table import Table, has_lists
from calibjax.evaluation._labels import (
    LabelError,
    Labels,
    checked_classes,
    read_events,
    read_labels,
)


def labels_of_classes(
    table: Table,
    name: str,
    classes: Sequence[Any] | None,
    columns: Sequence[Any] | None,
    predictions: Categorical,
) -> Labels:
    """The places of labels among the columns of probabilities, and the names of the classes.

    Args:
        table: the columns.
        name: the column of labels.
        classes: the names of the classes, if they are said.
        columns: the names that the columns of probabilities have, if they are named.
        predictions: the probabilities.
    """
    is_said = classes is not None
    if is_said:
        columns = checked_classes("classes", classes, predictions.probs.shape[1])
    return _read(table, name, lambda x: read_labels(x, columns, predictions, is_said))


def labels_of_event(table: Table, name: str, event: str | None) -> Labels:
    """Labels, 1 of an event and 0 of its absence, and the names of both."""
    labels = _read(table, name, lambda column: read_events(column, event))
    if event is not None and not labels.places.any():
        # It may be rare, or have another name.
        table.say(f"{table.source}, column {name}: no row is {event}.")
    return labels


def letters_of_options(table: Table, names: Sequence[str], target: str) -> list[str] | None:
    """Letters that call the numbers of lists, if all targets are such; None if they are not."""
    cells = table.cells(names[0])
    if len(names) > 1 or not has_lists(cells):
        return None
    letters = string.ascii_uppercase[: max(len(x) for x in cells)]
    if not all(isinstance(x, str) and x.strip() in list(letters) for x in table.cells(target)):
        return None
    table.say(f"{table.source}, column {target}: A is the first of {names[0]}, and so on.")
    return list(letters)


def _read(table: Table, name: str, read: Callable[[np.ndarray], Labels]) -> Labels:
    try:
        return read(table.labels(name))
    except LabelError as error:
        option = table.option
        advice = {
            None: "",
            "classes": ": name the columns by the classes, such as p_cat and p_dog with "
            f"{option('probs', 'p_*')}; of lists write the places of options, from 0, or A, B, …",
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
