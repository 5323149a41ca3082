"""What is known of rows beside their targets: columns that a map looks at, and what depends."""

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import jax
import numpy as np
from sklearn.model_selection import GroupKFold, PredefinedSplit, StratifiedGroupKFold, check_cv
from sklearn.utils import _safe_indexing

from calibjax._rows import Dependence, filled_up

#: What a model says of features, that was fitted to features, targets and weights.
Predict = Callable[[Any, np.ndarray, np.ndarray | None, Any], np.ndarray]


def columns_of(X: Any, names: Sequence[str | int] | None) -> dict[str, np.ndarray] | None:
    """Columns of features, by names in frames and by positions in arrays; None of none."""
    if names is None:
        return None
    try:
        return {str(name): np.asarray(_safe_indexing(X, name, axis=1)) for name in names}
    except (LookupError, ValueError) as error:
        raise ValueError(f"X must have the columns {list(names)}: {error}.") from error


def filled_columns(columns: dict[str, np.ndarray] | None) -> dict[str, np.ndarray] | None:
    """The columns with as many rows as `filled_up` makes of predictions."""
    if columns is None:
        return None
    return {name: filled_up(values) for name, values in columns.items()}


def held_out(
    cv: Any,
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    dependence: Dependence,
    predict: Predict,
    of_classes: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that were held out, each as often as it was, and what models said that did not see them.

    Args:
        cv: a number of folds, a splitter, or pairs of rows.
        X: features ``[n, d]``.
        y: targets ``[n]``.
        weights: of the rows ``[n]``, or None.
        dependence: clusters, or times.
        predict: what a model says of features, that was fitted to features, targets and weights.
        of_classes: whether targets are classes.
    """
    held, found = [], []
    for train, test in _folds_of(cv, X, y, dependence, of_classes):
        others, rows = (np.arange(len(y))[np.asarray(x)] for x in (train, test))
        some = None if weights is None else weights[others]
        new = _safe_indexing(X, rows)
        found.append(predict(_safe_indexing(X, others), y[others], some, new))
        held.append(rows)
    if not sum(map(len, held)):
        raise ValueError("cv must hold out at least 1 row, got none.")
    order = np.argsort(np.concatenate(held), kind="stable")
    return np.concatenate(held)[order], np.concatenate(found)[order]


def known_of(
    held: np.ndarray,
    weights: np.ndarray | None,
    dependence: Dependence,
    **columns: dict[str, np.ndarray] | None,
) -> dict[str, Any]:
    """Arguments of `fit_recalibrator` beside predictions and targets, of rows that were held out.

    A row that was held out several times is a cluster, unless rows have clusters or times.
    """
    clusters, times, _ = dependence
    if clusters is None and times is None and np.any(np.diff(held) == 0):
        clusters = np.arange(held[-1] + 1)
    known = {"weights": weights, "clusters": clusters, "times": times} | columns
    return {name: jax.tree.map(lambda x: np.asarray(x)[held], x) for name, x in known.items()}


def _folds_of(
    cv: Any, X: Any, y: np.ndarray, dependence: Dependence, of_classes: bool
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Rows that train a model, and others that fit the map to its predictions.

    Of a number of folds, rows of one cluster are in one fold, and times make blocks of consecutive
    ones.  Splitters are given clusters or times as groups.  Folds of classes have all of them, as
    far as that can be.
    """
    clusters, times, _ = dependence
    if not isinstance(cv, Integral) or (clusters is None and times is None):
        splitter = check_cv(cv, y, classifier=of_classes)
        return splitter.split(X, y, times if clusters is None else clusters)
    if clusters is not None:
        by_cluster = StratifiedGroupKFold if of_classes else GroupKFold
        return by_cluster(int(cv)).split(X, y, clusters)
    number = np.unique(np.asarray(times), return_inverse=True)[1]
    n_times = int(number.max()) + 1
    if n_times < 2:
        raise ValueError("times must have at least 2 different values, got 1.")
    return PredefinedSplit(number * min(int(cv), n_times) // n_times).split()
