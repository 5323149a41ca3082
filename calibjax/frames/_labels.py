"""Labels of any kind as the integers that predictions count, and names of classes."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Never

import numpy as np

from calibjax._data.distribution import Distribution, as_labels
from calibjax.distributions import Bernoulli
from calibjax.frames._table import Table

# What equal names have in common: a text, or a number however it is written.
Key = str | Decimal

_NUMERAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_TRUTHS = ("false", "true")

# Pairs of labels of which everybody takes the second one for the event.
EVENTS: list[tuple[Key, Key]] = [(Decimal(0), Decimal(1)), (Decimal(-1), Decimal(1)), _TRUTHS]
EVENTS += [("f", "t"), ("no", "yes"), ("n", "y"), ("off", "on")]
EVENTS += [("negative", "positive"), ("neg", "pos")]


def key_of(name: object) -> Key:
    """What equal names share: 1, 1.0 and "1" are one name, and so are True and "TRUE".

    Numbers are exact, however long they are.
    """
    text = str(name).strip()
    if text.casefold() in _TRUTHS:
        return text.casefold()
    return Decimal(text) if _NUMERAL.fullmatch(text) else text


def event_key(name: object) -> Key:
    """The key of a name of `EVENTS`, whose capital letters mean nothing."""
    key = key_of(name)
    return key.casefold() if isinstance(key, str) else key


def number_of(label: object) -> int | None:
    """The whole number that a label is, or None; False is 0, and True is 1."""
    key = key_of(label)
    if key in _TRUTHS:
        return _TRUTHS.index(str(key))
    is_whole = isinstance(key, Decimal) and key == key.to_integral_value()
    return int(key) if is_whole else None


SEVERAL_LABELS = (
    "targets must be one label in each row, got several or none: evaluate each label as an event, "
    "evaluate(probs[:, 0], targets[:, 0])."
)


def are_several_labels(targets: np.ndarray) -> bool:
    """Whether rows ``[n, L]`` of 0 and 1 have more or fewer than one label."""
    is_binary = targets.dtype.kind in "biuf" and bool(np.isin(targets, (0, 1)).all())
    return is_binary and bool(np.any(targets.sum(axis=1) != 1))


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

    def index(self, label: object) -> int | None:
        """The index of the name that a label is; None for no name, or if it may be two of them."""
        key = key_of(label)
        index = self._indices.get(str(label).strip(), self._of_keys.get(key))
        if index is None and key in _TRUTHS and {Decimal(0), Decimal(1)} <= self._of_keys.keys():
            return self._of_keys[Decimal(_TRUTHS.index(str(key)))]
        return index

    def other_readings(self, counts: Sequence[int], ordered: bool) -> dict[int, tuple[int, str]]:
        """What numbers mean if they do not count the classes: the index of a class, and why.

        Args:
            counts: numbers 0 … m-1.
            ordered: whether users gave the order of the classes; columns may have any order.
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


#: The indices ``0 … m-1`` of labels ``[n]``, int32, and the names of the classes or None.
Labels = tuple[np.ndarray, list[Any] | None]


def read_labels(
    table: Table,
    name: str,
    predictions: Distribution,
    said: Sequence[Any] | None,
    called: Sequence[Any] | None = None,
    event: str | None = None,
) -> Labels:
    """Labels in a column; errors name the column and the row, and say what to do.

    They are names if one of them is the name of a class, or if a class has a number for a name.
    Else they are whole numbers, which count the classes from 0; if these numbers can mean something
    else as well, it must be the same.

    Args:
        table: the columns.
        name: the column, of strings, numbers or truth values.
        predictions: predictions of m classes, of which rows may lack some, or of an event.
        said: the names of the classes in the order of predictions; or None.
        called: what the columns of predictions are called, in whatever order, or None.
        event: the label of the event, or None for labels that say it, such as "no" and "yes".
    """
    n_classes, names = predictions.n_labels or 0, called
    if said is not None:
        names = _checked_classes("classes", said, n_classes)
        ours, theirs = ([key_of(x) for x in some] for some in (names, called or names))
        if ours != theirs and set(ours) == set(theirs):
            raise ValueError(
                f"classes must be in the order of the columns of predictions, got "
                f"{_shortened(names)} for columns {_shortened(called or [])}."
            )
    elif called is not None:
        names = _checked_classes("columns of predictions", called, n_classes)
    column = _Column(table, name, n_classes, names)
    if isinstance(predictions, Bernoulli) and names is None:
        return _events(column) if event is None else _labels_of_event(column, event)
    if names is None:
        expected = f"labels 0 … {n_classes - 1}"
        indices = column.spread(_numbers(column, expected, n_classes, "classes"))
    else:
        indices = column.spread(_of_names(column, names, n_classes, said is not None))
    if as_labels(predictions).ragged:
        has_option = np.asarray(predictions.parameter("probs")) > 0
        valid, shown = has_option[np.arange(len(has_option)), indices], names or range(n_classes)

        def got(row: int) -> str:
            return f"{shown[int(indices[row])]}, with {has_option[row].sum()} options"

        table.check(name, valid, "options of their rows", got)
    is_counted = names is None or list(names) == list(range(n_classes))
    return indices, None if is_counted else list(names or [])


def _of_names(column: "_Column", names: Sequence, n_classes: int, ordered: bool) -> Sequence[int]:
    """The index of the class of each value; `ordered` if users gave the order of names."""
    column.check_exact()
    known, among = Names(names), f"labels among classes {_shortened(names)}"
    found = [known.index(value) for value in column.values]
    if known.have_numbers or any(index is not None for index in found):
        numbers = [number_of(value) for value in column.values]
        may_count = all(number in range(n_classes) for number in numbers)
        hint = ": if labels count the classes from 0, write the names" if may_count else ""
        if [number_of(name) for name in names] == list(range(n_classes)) and n_classes in numbers:
            hint = ": if labels count the classes from 1, subtract 1"
        column.check((index is not None for index in found), among, hint)
        return [index for index in found if index is not None]
    needs = "" if ordered else "classes"
    indices = _numbers(column, f"{among}, or 0 … {n_classes - 1}", n_classes, needs)
    for number, (other, why) in known.other_readings(indices, ordered).items():
        column.check(
            (index != number or index == other for index in indices),
            f"{among}, since numbers have two readings",
            f", which may be {names[number]!r}, counting from 0, or {names[other]!r}, {why}: write "
            "the names",
        )
    return indices


def _events(column: "_Column") -> Labels:
    """Labels of an event, 1, and of its absence, 0, which say it themselves."""
    keys = [event_key(value) for value in column.values]
    for pair in EVENTS:
        if set(keys) <= set(pair):
            has_names = pair[1] not in (Decimal(1), "true")
            return column.spread(pair.index(key) for key in keys), list(pair) if has_names else None
    column.check_whole("labels 0 … 1")
    expected = "labels 1 of an event and 0 of its absence"
    column.refuse(expected, needs="event" if len(keys) <= 2 else "")


def _labels_of_event(column: "_Column", event: str) -> Labels:
    column.check_exact()
    is_event = [key_of(value) == key_of(event) for value in column.values]
    # Another spelling of the event may be a mistake in its name.
    may_be = [event_key(value) == event_key(event) for value in column.values]
    if is_event.count(False) > 1 or is_event != may_be:
        column.refuse(f"labels of two classes, of which {event!r} is one")
    return column.spread(map(int, is_event)), [f"not {event}", event]


def _numbers(column: "_Column", expected: str, n_classes: int, needs: str) -> list[int]:
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
        column.refuse(expected, f"1 … {n_classes}: subtract 1")
    column.check((0 <= number < n_classes for number in numbers), expected)
    return numbers


class _Column:
    """Labels ``[n]`` by their different values, each of which is read once.

    `needs` of errors is what users must add: the names of the "classes", which of two labels is the
    "event", or a "distribution" of real targets.
    """

    def __init__(self, table: Table, name: str, n_classes: int, names: Sequence | None) -> None:
        self._table, self._name, self._names, self._n_classes = table, name, names, n_classes
        labels = table.labels(name)
        shape = list(labels.shape)
        if labels.ndim == 2 and shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim == 2 and are_several_labels(labels):
            raise ValueError(SEVERAL_LABELS)
        if labels.ndim == 2 and shape[1] == n_classes:
            words = f"one-hot rows or scores of shape {shape}: numpy.argmax(targets, axis=1) makes "
            self.refuse("labels, one for each row", f"{words}labels of them")
        if labels.ndim != 1:
            self.refuse("labels [n]", f"shape {shape}")
        self.values, self._rows, self._inverse = np.unique(
            labels, return_index=True, return_inverse=True
        )
        if labels.dtype.kind == "f":
            self.check(np.isfinite(self.values), "labels")

    def spread(self, of_values: Iterable[int]) -> np.ndarray:
        """The index of each value as the index of each label ``[n]``."""
        return np.array(list(of_values), np.int32)[self._inverse]

    def check(self, valid: Iterable[bool], expected: str, hint: str = "", needs: str = "") -> None:
        """An error at the first row whose value is not valid."""
        wrong = np.flatnonzero(~np.array(list(valid), bool))
        if not wrong.size:
            return
        first = wrong[np.argmin(self._rows[wrong])]
        shown = self.values[first].item()
        message = f"expected {expected}, got {shown!r}{hint}{self._advice(needs)}"
        if str(shown).strip() == "-1":
            message += "; if -1 stands for no label, leave out its rows"
        if not str(shown).strip():
            dropping = self._table.option("drop_missing", True)
            message = f"expected a label, got an empty text; {dropping} leaves out its row"
        self._table.fail(self._name, int(self._rows[first]), f"{message}.")

    def refuse(self, expected: str, got: str = "", needs: str = "") -> Never:
        """An error about all labels."""
        shown = got or _shortened(self.values.tolist())
        self._table.refuse(self._name, f"expected {expected}, got {shown}{self._advice(needs)}")

    def check_whole(self, expected: str) -> None:
        """An error if a value is a number which is not whole."""
        valid = (number_of(x) is not None or isinstance(key_of(x), str) for x in self.values)
        self.check(valid, expected, needs="distribution")

    def check_exact(self) -> None:
        """An error if a value is a float of which several whole numbers are rounded."""
        if self.values.dtype.kind == "f":
            largest = 2 / np.finfo(self.values.dtype).eps
            expected = f"integers or strings if they reach {largest:.0f}, where floats are rounded"
            self.check(np.abs(self.values) < largest, expected)

    def _advice(self, needs: str) -> str:
        """What to do about labels that are not classes."""
        option, is_named = self._table.option, bool(self._table.source)
        if needs == "distribution":
            if is_named:
                options = f"{option('mean')} and {option('sd')}, {option('quantiles')}"
                return f"; for real targets take {options} or {option('draws')}"
            return "; of real targets predictions are calibjax.Normal(mean, sd), Empirical(draws) …"
        if needs == "event" and is_named:
            return f": {option('event')} must say which of them is the event"
        if needs == "event":
            example = self.values.tolist() if len(self.values) == 2 else ["no", "yes"]
            if str(example[1]).endswith(str(example[0])):
                example.reverse()  # "not_churn" is the absence of "churn"
            return f": classes must name them, the event last, as classes={example!r} does"
        if needs == "classes" and is_named:
            return (
                f": name the columns by the classes, such as p_cat and p_dog with "
                f"{option('probs', 'p_*')}; of lists write the indices of options, from 0, or A, B"
            )
        if needs == "classes":
            names = f"classes={_shortened(self.values.tolist())}"
            lacks = f", all {self._n_classes} of them, and not only {names[8:]}"
            is_whole = len(self.values) == self._n_classes
            sorted_ = f", if these are sorted {names}" if is_whole else lacks
            order = "in the order of the columns of predictions"
            return f": classes must name the classes {order}{'' if self._names else sorted_}"
        return ""


def _shortened(names: Sequence[Any]) -> str:
    """A list as Python writes it, or its first five items."""
    if len(names) <= 6:
        return repr(list(names))
    return repr(list(names[:5]))[:-1] + f", … {len(names)} in all]"


def _checked_classes(argument: str, classes: Any, n_classes: int) -> list[Any]:
    """A list of m different strings, numbers or truth values."""
    if isinstance(classes, (str, set)) or not hasattr(classes, "__len__"):
        raise TypeError(f"{argument} must be a list of names, got {type(classes).__name__}.")
    if getattr(classes, "ndim", 1) != 1:
        raise TypeError(f"{argument} must be a list of names, got shape {list(classes.shape)}.")
    names = [x.item() if getattr(x, "ndim", None) == 0 else x for x in classes]
    for name in names:
        if not isinstance(name, (str, int, float)) or name != name:
            raise TypeError(f"{argument} must be strings or numbers, got {repr(name)[:60]}.")
    if (n := len(names)) != n_classes:
        order = "of 0 and of 1" if n_classes == 2 else "in the order of the columns"
        raise ValueError(f"{argument} must be {n_classes} names, {order} of predictions, got {n}.")
    if len({str(name).strip() for name in names}) != len(names):
        raise ValueError(f"{argument} must be different names, got {_shortened(names)}.")
    return names
