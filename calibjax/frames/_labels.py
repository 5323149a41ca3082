"""Labels of any kind as the integers that predictions count, and what to do about others."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np

from calibjax._data import Distribution
from calibjax.distributions import Bernoulli
from calibjax.frames._class_names import EVENTS, Names, event_key, key_of, number_of, text_of

Needs = Literal["classes", "event", "distribution"]


class Labels(NamedTuple):
    """The indices ``0 … m-1`` of labels ``[n]``, int32, and the names of the classes or None."""

    indices: np.ndarray
    classes: list[Any] | None


class LabelError(Exception):
    """Labels that are no classes, or may be several.

    Args:
        expected: what labels should be.
        got: what came.
        row: where it came; None if it is about all rows.
        needs: what people must say in addition, which is done in another way in Python than on the
            command line: the names of the classes, which of two labels is the event, or a
            distribution of real targets.
    """

    def __init__(
        self, expected: str, got: str, row: int | None = None, needs: Needs | None = None
    ) -> None:
        super().__init__(expected, got, row, needs)
        self.expected, self.got, self.row, self.needs = expected, got, row, needs


def read_labels(
    targets: np.ndarray, names: Sequence[Any] | None, predictions: Distribution, ordered: bool
) -> Labels:
    """Labels of m classes.

    They are names if one of them is the name of a class, or if a class has a number for a name.
    Else they are whole numbers, which count the classes from 0; if these numbers can mean something
    else as well, it must be the same.

    Args:
        targets: labels ``[n]`` or ``[n, 1]``: strings, numbers or truth values.
        names: the names of the classes in the order of the predictions, which differ; or None.
        predictions: the probabilities of the m classes, of which rows may lack some.
        ordered: whether people have said that the names have this order, as columns do not.

    Raises:
        LabelError: a label is no class of its row, or may be two of them.
    """
    n_classes = predictions.n_labels or 0
    column = _Column(targets, n_classes)
    if names is None:
        indices = _numbers(column, f"labels 0 … {n_classes - 1}", n_classes, "classes")
        return _of_rows(Labels(column.spread(indices), None), predictions)
    column.check_exact()
    known, among = Names(names), f"labels among classes {shortened(names)}"
    found = [known.index(value) for value in column.values]
    if known.have_numbers or any(index is not None for index in found):
        may_count = all(number_of(value) in range(n_classes) for value in column.values)
        hint = ": if labels count the classes from 0, write the names" if may_count else ""
        numbers = [number_of(value) for value in column.values]
        if [number_of(name) for name in names] == list(range(n_classes)) and n_classes in numbers:
            hint = ": if labels count the classes from 1, subtract 1"
        column.check((index is not None for index in found), among, hint)
        indices = [index for index in found if index is not None]
    else:
        expected = f"{among}, or 0 … {n_classes - 1}"
        indices = _numbers(column, expected, n_classes, None if ordered else "classes")
        for number, (other, why) in known.other_readings(indices, ordered).items():
            column.check(
                (index != number or index == other for index in indices),
                f"{among}, since numbers have two readings",
                f", which may be {names[number]!r}, counting from 0, or {names[other]!r}, {why}: "
                "write the names",
            )
    is_counted = list(names) == list(range(n_classes))
    labels = Labels(column.spread(indices), None if is_counted else list(names))
    return _of_rows(labels, predictions)


def read_events(targets: np.ndarray, event: str | None = None) -> Labels:
    """Labels of an event, 1, and of its absence, 0.

    Args:
        targets: labels ``[n]`` or ``[n, 1]``: 0 and 1, truth values, or names.
        event: the name of the event; None for labels that say it, such as "no" and "yes".

    Raises:
        LabelError: it is not clear which label is the event, or there are more than two.
    """
    column = _Column(targets, 2)
    if event is not None:
        return _labels_of_event(column, event)
    keys = [event_key(value) for value in column.values]
    for pair in EVENTS:
        if set(keys) <= set(pair):
            has_names = pair[1] not in (Decimal(1), "true")
            indices = column.spread(pair.index(key) for key in keys)
            return Labels(indices, list(pair) if has_names else None)
    column.check_whole("labels 0 … 1")
    expected = "labels 1 of an event and 0 of its absence"
    needs: Needs | None = "event" if len(keys) <= 2 else None
    raise LabelError(expected, shortened(column.values.tolist()), needs=needs)


def _of_rows(labels: Labels, predictions: Distribution) -> Labels:
    """The labels; a LabelError if one is an option that its row does not have."""
    if predictions.ragged:
        has_option = np.asarray(predictions.parameter("probs")) > 0
        wrong = np.flatnonzero(~has_option[np.arange(len(has_option)), labels.indices])
        if wrong.size:
            row, names = int(wrong[0]), labels.classes or range(has_option.shape[1])
            got = f"{names[labels.indices[row]]}, with {has_option[row].sum()} options"
            raise LabelError("options of their rows", got, row)
    return labels


def _labels_of_event(column: "_Column", event: str) -> Labels:
    column.check_exact()
    is_event = [key_of(value) == key_of(event) for value in column.values]
    # Another spelling of the event may be a mistake in its name.
    may_be = [event_key(value) == event_key(event) for value in column.values]
    if is_event.count(False) > 1 or is_event != may_be:
        expected = f"labels of two classes, of which {event!r} is one"
        raise LabelError(expected, shortened(column.values.tolist()))
    return Labels(column.spread(map(int, is_event)), [f"not {event}", event])


def _numbers(column: "_Column", expected: str, n_classes: int, needs: Needs | None) -> list[int]:
    """The numbers ``0 … m-1`` that values are; `needs` is what must be said if they are names."""
    column.check_whole(expected)
    # Among more than two classes none is false or true.
    found = [
        number_of(value) if n_classes == 2 or isinstance(key_of(value), Decimal) else None
        for value in column.values
    ]
    column.check((number is not None for number in found), expected, needs=needs)
    numbers = [number for number in found if number is not None]
    if numbers and min(numbers) == 1 and max(numbers) == n_classes:
        raise LabelError(expected, f"1 … {n_classes}: subtract 1")
    column.check((0 <= number < n_classes for number in numbers), expected)
    return numbers


class _Column:
    """Labels ``[n]`` by their different values, each of which is read once."""

    def __init__(self, targets: np.ndarray, n_classes: int) -> None:
        shape = list(targets.shape)
        if targets.ndim == 2 and shape[1] == 1:
            targets = targets[:, 0]
        if targets.ndim == 2 and shape[1] == n_classes:
            raise LabelError(
                "labels, one for each row",
                f"one-hot rows or scores of shape {shape}: numpy.argmax(targets, axis=1) makes "
                "labels of them",
            )
        if targets.ndim != 1:
            raise LabelError("labels [n]", f"shape {shape}")
        self.values, self._rows, self._inverse = np.unique(
            targets, return_index=True, return_inverse=True
        )
        if targets.dtype.kind == "f":
            self.check(np.isfinite(self.values), "labels")

    def spread(self, of_values: Iterable[int]) -> np.ndarray:
        """The index of each value as the index of each label ``[n]``."""
        return np.array(list(of_values), np.int32)[self._inverse]

    def check(
        self, valid: Iterable[bool], expected: str, hint: str = "", needs: Needs | None = None
    ) -> None:
        """An error at the first row whose value is not valid."""
        wrong = np.flatnonzero(~np.array(list(valid), bool))
        if wrong.size:
            first = wrong[np.argmin(self._rows[wrong])]
            came = repr(self.values[first].item())
            raise LabelError(expected, f"{came}{hint}", int(self._rows[first]), needs)

    def check_whole(self, expected: str) -> None:
        """An error if a value is a number which is not whole."""
        valid = (
            number_of(value) is not None or isinstance(key_of(value), str) for value in self.values
        )
        self.check(valid, expected, needs="distribution")

    def check_exact(self) -> None:
        """An error if a value is a float of which several whole numbers are rounded."""
        if self.values.dtype.kind == "f":
            largest = 2 / np.finfo(self.values.dtype).eps
            expected = f"integers or strings if they reach {largest:.0f}, where floats are rounded"
            self.check(np.abs(self.values) < largest, expected)


def shortened(names: Sequence[Any]) -> str:
    """A list as Python writes it, or its first five items."""
    if len(names) <= 6:
        return repr(list(names))
    return repr(list(names[:5]))[:-1] + f", … {len(names)} in all]"


def labels_in_python(
    targets: np.ndarray,
    classes: Sequence[Any] | None,
    columns: list[Any] | None,
    predictions: Distribution,
) -> Labels:
    """The indices of labels, and the names of the classes.

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
        where = ", got" if error.row is None else f"; row {error.row} is"
        advice = _advice(error, targets, names)
        raise ValueError(f"targets must be {error.expected}{where} {error.got}{advice}.") from None


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
