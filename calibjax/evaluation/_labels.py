"""Class labels of any kind as the integers that predictions count."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_classes(classes: Sequence[Any] | None, n_classes: int) -> list[Any] | None:
    """The names of the classes as a list, None if there are none.

    Raises:
        TypeError: classes are no list.
        ValueError: there are not n_classes different ones.
    """
    if classes is None:
        return None
    if isinstance(classes, str) or not hasattr(classes, "__len__"):
        raise TypeError(f"classes must be a list of names, got {type(classes).__name__}.")
    names = [x.item() if isinstance(x, np.generic) else x for x in classes]
    if len(names) != n_classes:
        order = "of 0 and of 1" if n_classes == 2 else "in the order of the columns"
        raise ValueError(
            f"classes must be {n_classes} names, {order} of predictions, got {len(names)}."
        )
    if len(set(names)) != len(names):
        raise ValueError(f"classes must be different names, got {_shortened(names)}.")
    return names


def labels_of(targets: np.ndarray, classes: list[Any] | None, n_classes: int) -> np.ndarray:
    """The number 0 … n_classes - 1 of each label, ``[n]``.

    Args:
        targets: names of classes, or their numbers.
        classes: the names of the classes; None if targets are numbers.
        n_classes: the number of classes, m.

    Raises:
        TypeError, ValueError: targets are one-hot, no labels, or not among the classes.
    """
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim == 2 and targets.shape[1] == n_classes:
        raise ValueError(
            "targets must be labels, one for each row, got one-hot rows or scores of shape "
            f"{list(targets.shape)}: numpy.argmax(targets, axis=1) makes labels of them."
        )
    if targets.ndim != 1:
        raise ValueError(f"targets must be labels [n], got shape {list(targets.shape)}.")
    if targets.dtype.kind == "U":
        if classes is None:
            found = _shortened(np.unique(targets).tolist())
            raise ValueError(
                "classes must name the classes in the order of the columns of predictions, "
                f"since targets are strings: if they are sorted, classes={found}."
            )
        return _places(targets, classes)
    if classes is not None and not any(isinstance(name, str) for name in classes):
        return _places(targets, classes)
    return _whole_numbers(targets, n_classes)


def _places(targets: np.ndarray, classes: list[Any]) -> np.ndarray:
    """The places of labels in the list of classes."""
    values, inverse = np.unique(targets, return_inverse=True)
    places = {name: place for place, name in enumerate(classes)}
    found = np.array([places.get(value, -1) for value in values.tolist()])[inverse]
    if found.min(initial=0) < 0:
        row = int(np.argmin(found))
        raise ValueError(
            f"targets must be among classes {_shortened(classes)}; row {row} is "
            f"{targets[row].item()!r}."
        )
    return found.astype(np.int32)


def _whole_numbers(targets: np.ndarray, n_classes: int) -> np.ndarray:
    if targets.dtype.kind == "f":
        wrong = ~(targets == np.floor(targets))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"targets must be labels 0 … {n_classes - 1} for predicted probabilities; row "
                f"{row} is {targets[row]}. For real targets predictions must be distributions, "
                "such as calibjax.Normal(mean, sd) or draws, calibjax.Empirical(draws)."
            )
    low, high = targets.min(initial=0), targets.max(initial=0)
    if low >= 0 and high < n_classes:
        return targets.astype(np.int32)
    if high == n_classes and targets.min() == 1:
        raise ValueError(
            f"targets must be labels 0 … {n_classes - 1}, got 1 … {n_classes}: subtract 1."
        )
    row = int(np.argmax((targets < 0) | (targets >= n_classes)))
    raise ValueError(
        f"targets must be labels 0 … {n_classes - 1}; row {row} is {targets[row].item():g}."
    )


def _shortened(names: Sequence[Any]) -> str:
    """A list as Python writes it, or its first five items."""
    if len(names) <= 6:
        return repr(list(names))
    return repr(list(names[:5]))[:-1] + f", … {len(names)} in all]"
