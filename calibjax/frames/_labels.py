"""Labels of any kind as the integers that predictions count, and names of classes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np

from calibjax._data import Distribution

# What equal names have in common: a text, or a number however it is written.
Key = str | Decimal

_NUMERAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_TRUTHS = ("false", "true")

# Pairs of labels of which everybody takes the second one for the event.
EVENTS: list[tuple[Key, Key]] = [
    (Decimal(0), Decimal(1)),
    (Decimal(-1), Decimal(1)),
    _TRUTHS,
    ("f", "t"),
    ("no", "yes"),
    ("n", "y"),
    ("off", "on"),
    ("negative", "positive"),
    ("neg", "pos"),
]


def key_of(name: Any) -> Key:
    """What equal names share: 1, 1.0 and "1" are one name, and so are True and "TRUE".

    Numbers are exact, however long they are.
    """
    text = str(name).strip()
    if text.casefold() in _TRUTHS:
        return text.casefold()
    return Decimal(text) if _NUMERAL.fullmatch(text) else text


def event_key(name: Any) -> Key:
    """The key of a name of `EVENTS`, whose capital letters mean nothing."""
    key = key_of(name)
    return key.casefold() if isinstance(key, str) else key


def number_of(label: Any) -> int | None:
    """The whole number that a label is, None if it is none; False is 0, and True is 1."""
    key = key_of(label)
    if key in _TRUTHS:
        return _TRUTHS.index(str(key))
    is_whole = isinstance(key, Decimal) and key == key.to_integral_value()
    return int(key) if is_whole else None


class Names:
    """The names of classes in their order.

    Args:
        names: different strings, numbers or truth values.
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self._texts = [str(name).strip() for name in names]
        keys = [key_of(name) for name in names]
        self._indices = {text: k for k, text in enumerate(self._texts)}
        count = Counter(keys)
        self._of_keys = {key: k for k, key in enumerate(keys) if count[key] == 1}
        self.have_numbers = any(isinstance(key, Decimal) for key in keys)

    def index(self, label: Any) -> int | None:
        """The index of the name that a label is; None if it is none, or may be two of them."""
        key = key_of(label)
        index = self._indices.get(str(label).strip(), self._of_keys.get(key))
        if index is None and key in _TRUTHS and {Decimal(0), Decimal(1)} <= self._of_keys.keys():
            return self._of_keys[Decimal(_TRUTHS.index(str(key)))]
        return index

    def other_readings(self, counts: Sequence[int], ordered: bool) -> dict[int, tuple[int, str]]:
        """What numbers mean if they do not count the classes: the index of a class, and why.

        Args:
            counts: numbers 0 … m-1.
            ordered: whether people have said the order of the classes; columns may have any order.
        """
        for ending in "[0-9]+$", r"-?[0-9]+(\.[0-9]*)?$":
            found = [re.search(ending, text) for text in self._texts]
            numbers = [Decimal(end.group()) for end in found if end is not None]
            if len(set(numbers)) == len(self._texts) and set(numbers).issuperset(counts):
                why = "by the number in its name"
                return {x: (numbers.index(Decimal(x)), why) for x in counts}
        if len(self._texts) != 2:
            return {}
        keys = [event_key(text) for text in self._texts]
        for pair in EVENTS:
            if set(keys) == set(pair):
                return {x: (keys.index(pair[x]), f"since {x} means {pair[x]}") for x in counts}
        if ordered:
            return {}
        by_alphabet = sorted(range(2), key=lambda index: self._texts[index].casefold())
        return {x: (by_alphabet[x], "by the alphabet") for x in counts}


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
    if len({str(name).strip() for name in names}) != len(names):
        raise ValueError(f"{argument} must be different names, got {shortened(names)}.")
    return names
