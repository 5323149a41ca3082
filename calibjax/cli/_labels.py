"""Labels from a column of a file; errors name the file, the column and the row."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import typer

from calibjax.cli._table import Table
from calibjax.cli._terminal import BadInput
from calibjax.evaluation import LabelError, Labels, read_events, read_labels

_ADVICE = {
    None: "",
    "classes": ": name the columns by the classes, such as p_cat and p_dog with --probs 'p_*'",
    "event": ": --event must say which of them is the event",
    "distribution": "; for real targets take --mean and --sd, --quantiles or --draws",
}


def labels_of_classes(
    table: Table, name: str, classes: Sequence[str] | None, n_classes: int
) -> Labels:
    """The places of labels among the columns of probabilities, and the names of the classes."""
    return _read(table, name, lambda column: read_labels(column, classes, n_classes))


def labels_of_event(table: Table, name: str, event: str | None) -> Labels:
    """Labels, 1 of an event and 0 of its absence, and the names of both."""
    labels = _read(table, name, lambda column: read_events(column, event))
    if event is not None and not labels.places.any():
        # It may be rare, or have another name.
        typer.echo(f"{table.path}, column {name}: no row is {event}.", err=True)
    return labels


def _read(table: Table, name: str, read: Callable[[np.ndarray], Labels]) -> Labels:
    try:
        return read(_values(table, name))
    except LabelError as error:
        message = f"expected {error.expected}, got {error.got}{_ADVICE[error.needs]}."
        if error.row is not None:
            table.fail(name, error.row, message)
        raise BadInput(f"{table.path}, column {name}: {message}") from None


def _values(table: Table, name: str) -> np.ndarray:
    """A column without missing values; all but floats as text, which is exact."""
    column = table.column(name)
    table.check(name, column.is_not_null().to_numpy(), "a label")
    if column.dtype.is_float():
        return column.to_numpy()
    if isinstance(column.dtype, pl.Array):
        return np.array(column.to_list())
    if column.dtype.is_nested():
        raise BadInput(f"{table.path}, column {name}: expected labels, got {column.dtype}.")
    return np.array(column.cast(pl.String).to_list(), dtype=str)
