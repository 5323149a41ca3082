"""Names of classes: when two are the same, and what else the numbers of classes may mean."""

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

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


def text_of(name: Any) -> str:
    """A name as it is written."""
    return str(name).strip()


def key_of(name: Any) -> Key:
    """What equal names share: 1, 1.0 and "1" are one name, and so are True and "TRUE".

    Numbers are exact, however long they are.
    """
    text = text_of(name)
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
        self._texts = [text_of(name) for name in names]
        keys = [key_of(name) for name in names]
        self._of_texts, self._of_keys = _indices(self._texts), _indices(keys)
        self.have_numbers = any(isinstance(key, Decimal) for key in keys)

    def index(self, label: Any) -> int | None:
        """The index of the name that a label is; None if it is none, or may be two of them."""
        key = key_of(label)
        index = self._of_texts.get(text_of(label), self._of_keys.get(key))
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


def _indices(items: Sequence[Key]) -> dict[Key, int]:
    """The indices of items that come once."""
    count = Counter(items)
    return {item: index for index, item in enumerate(items) if count[item] == 1}
