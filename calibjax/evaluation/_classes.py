"""Labels in Python: classes as people name them, and what to do about labels that are none."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._distribution import Distribution
from calibjax.distributions import Bernoulli
from calibjax.evaluation._labels import LabelError, Labels, read_events, read_labels, shortened
from calibjax.evaluation._names import key_of, text_of


def labels_in_python(
    targets: np.ndarray,
    classes: Sequence[Any] | None,
    columns: list[Any] | None,
    predictions: Distribution,
) -> Labels:
    """The places of labels, and the names of the classes.

    Args:
        targets: labels of any kind.
        classes: the names of the classes in the order of predictions; None if people gave none.
        columns: the names of the columns if predictions are a frame.
        predictions: predictions of m classes, or of an event.

    Raises:
        TypeError: classes are no list of strings or numbers.
        ValueError: classes are not m different names, or have another order than columns; or labels
            are none of them, or may be two of them.
    """
    n_classes, names = predictions.n_labels or 0, None
    if classes is not None:
        names = checked_classes("classes", classes, n_classes)
        if columns is not None:
            _check_order(names, columns)
    elif columns is not None and len(columns) == n_classes and all(map(_is_name, columns)):
        names = checked_classes("columns of predictions", columns, n_classes)
    try:
        if isinstance(predictions, Bernoulli) and names is None:
            return read_events(targets)
        return read_labels(targets, names, predictions, ordered=classes is not None)
    except LabelError as error:
        place = ", got" if error.row is None else f"; row {error.row} is"
        advice = _advice(error, targets, names)
        raise ValueError(f"targets must be {error.expected}{place} {error.got}{advice}.") from None


def _advice(error: LabelError, targets: np.ndarray, names: list[Any] | None) -> str:
    """What to do about an error."""
    if error.needs == "distribution":
        return (
            ". For real targets predictions must be distributions, such as calibjax.Normal(mean, "
            "sd) or draws, calibjax.Empirical(draws)"
        )
    found = np.unique(targets).tolist()
    if error.needs == "event":
        example = found if len(found) == 2 else ["no", "yes"]
        if text_of(example[1]).endswith(text_of(example[0])):
            example.reverse()  # "not_churn" is the absence of "churn"
        return f": classes must name them, the event last, as classes={example!r} does"
    if error.needs != "classes":
        return ""
    said = ": classes must name the classes in the order of the columns of predictions, "
    if names is None:
        return f"{said}if these are sorted classes={shortened(found)}"
    ends = [[label for label in found if text_of(name).endswith(text_of(label))] for name in names]
    known = all(len(labels) == 1 for labels in ends)
    return f"{said}classes={shortened([labels[0] for labels in ends]) if known else '[…]'}"


def _check_order(names: list[Any], columns: list[Any]) -> None:
    """An error if classes are the columns of a frame in another order."""
    ours, theirs = ([key_of(name) for name in some] for some in (names, columns))
    if ours != theirs and set(ours) == set(theirs):
        raise ValueError(
            f"classes must be in the order of the columns of predictions, got {shortened(names)} "
            f"for columns {shortened(columns)}."
        )


def _is_name(value: Any) -> bool:
    value = _scalar(value)
    return isinstance(value, (str, int, float)) and value == value


def _scalar(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 else value


def checked_classes(argument: str, classes: Any, n_classes: int) -> list[Any]:
    """A list of m different strings, numbers or truth values."""
    if isinstance(classes, (str, set)) or not hasattr(classes, "__len__"):
        raise TypeError(f"{argument} must be a list of names, got {type(classes).__name__}.")
    if getattr(classes, "ndim", 1) != 1:
        raise TypeError(f"{argument} must be a list of names, got shape {list(classes.shape)}.")
    for name in classes:
        if not _is_name(name):
            raise TypeError(f"{argument} must be strings or numbers, got {repr(name)[:60]}.")
    names = [_scalar(name) for name in classes]
    if len(names) != n_classes:
        order = "of 0 and of 1" if n_classes == 2 else "in the order of the columns"
        raise ValueError(
            f"{argument} must be {n_classes} names, {order} of predictions, got {len(names)}."
        )
    if len(set(map(text_of, names))) != len(names):
        raise ValueError(f"{argument} must be different names, got {shortened(names)}.")
    return names
