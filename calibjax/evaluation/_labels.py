"""Class labels of any kind as the integers that predictions count."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def classes_in_order(
    classes: Sequence[Any] | None, columns: list[Any] | None, targets: np.ndarray, n_classes: int
) -> list[Any] | None:
    """The names of the classes in the order of the predictions, None if labels are 0 … m-1.

    Args:
        classes: what people named, or None.
        columns: the names of the columns if predictions are a frame.  Targets that are strings are
            among them, and so may be numbers.
        targets: labels of any kind.
        n_classes: the number of classes, m.

    Raises:
        TypeError: classes are no list of strings or numbers.
        ValueError: there are not n_classes different ones; or columns have another order; or
            targets are numbers that may be places or names.
    """
    if classes is not None:
        names = _checked(classes, n_classes)
        if columns is not None and names != columns and set(names) == set(columns):
            raise ValueError(
                f"classes must be in the order of the columns of predictions, got "
                f"{_shortened(names)} for columns {_shortened(columns)}."
            )
    elif columns is None or len(columns) != n_classes:
        return None
    elif targets.dtype.kind == "U":
        names = _checked(columns, n_classes)
        _check_columns(names, np.unique(targets).tolist())
        return names
    else:
        names = columns
    if targets.dtype.kind == "U" or not _may_name(targets, names):
        return None if classes is None else names
    if any(isinstance(name, str) for name in names):
        raise ValueError(
            f"targets must be strings, as the names of classes {_shortened(names)} are: such "
            "numbers may be names or places."
        )
    return _checked(names, n_classes)


def _check_columns(columns: list[Any], labels: list[str]) -> None:
    """An error if the columns of a frame are not the names of the labels."""
    unknown = next((label for label in labels if label not in columns), None)
    if unknown is None:
        return
    ends = [[label for label in labels if str(column).endswith(label)] for column in columns]
    known = all(len(found) == 1 for found in ends)
    example = _shortened([found[0] for found in ends]) if known else "[…]"
    raise ValueError(
        f"targets must be among the columns of predictions, {_shortened(columns)}, got "
        f"{unknown!r}: name the classes in the order of these columns, classes={example}."
    )


def _may_name(targets: np.ndarray, names: list[Any]) -> bool:
    """Whether all targets are names of classes, at other places than 0 … m-1."""
    try:
        numbers = [float(name) for name in names]
    except (TypeError, ValueError):
        return False
    return numbers != list(range(len(names))) and bool(np.isin(targets, numbers).all())


def _checked(classes: Any, n_classes: int) -> list[Any]:
    """A list of n_classes different strings or numbers."""
    if isinstance(classes, (str, set)) or not hasattr(classes, "__len__"):
        raise TypeError(f"classes must be a list of names, got {type(classes).__name__}.")
    if getattr(classes, "ndim", 1) != 1:
        raise TypeError(f"classes must be a list of names, got shape {list(classes.shape)}.")
    names = [x.item() if getattr(x, "ndim", None) == 0 else x for x in classes]
    for name in names:
        if not isinstance(name, (str, int, float)) or name != name:
            raise TypeError(f"classes must be strings or numbers, got {repr(name)[:60]}.")
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
