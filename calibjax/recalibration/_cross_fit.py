"""Predictions that are recalibrated by maps which did not see their rows, and their scores."""

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._data import CovariatesLike, Data, Distribution, NamedColumns, RowOptions, Targets
from calibjax.distributions import Normal
from calibjax.recalibration._cross_validation import numbers_of_folds
from calibjax.recalibration._fit_recalibrator import data_outside_jit, fit_map
from calibjax.recalibration._pit_map import as_normal
from calibjax.scores import crps, log_score


def cross_fit(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    method: str = "auto",
    folds: int | ArrayLike = 5,
    *,
    groups: NamedColumns | None = None,
    covariates: CovariatesLike | None = None,
    lower: float | None = None,
    **rows: Unpack[RowOptions],
) -> Any:
    """Recalibrated predictions of all rows, each by a map that was fitted without its fold.

    All rows judge the method then, and none has fitted the map that recalibrates it: log scores,
    tests and `evaluate` are honest, but for this: the maps see a part of the rows only, and one map
    for later is fitted to all of them by `fit_recalibrator`.

    Args:
        predictions, targets: as in `fit_recalibrator`.
        method, groups, covariates, lower: as in `fit_recalibrator`.
        folds: a number of folds of 2 or more, to which rows (or clusters) go by chance, always the
            same, and times in blocks of consecutive ones; or the number of the fold of each row,
            integers ``[n]``, without clusters and times.
        rows: as in `fit_recalibrator`.  Clusters and times stay together in the parts that "auto"
            leaves out, too; a row of weight 0 fits no map, and is recalibrated.

    Returns:
        What the maps make of the predictions, in the order of the rows.

    Raises:
        TypeError, ValueError: as `fit_recalibrator`; fewer than 2 folds, or more than there are
            rows, clusters or times; clusters or times with given folds.

    See also:
        `fit_recalibrator`.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 3 * jax.random.normal(jax.random.key(0), (500,))
        >>> targets = cj.Bernoulli.from_logits(logits / 3).sample(jax.random.key(1))
        >>> predictions = cj.Bernoulli.from_logits(logits)
        >>> recalibrated = cj.cross_fit(predictions, targets, "temperature", 5)
        >>> for p in (predictions, recalibrated):
        ...     print(round(float(cj.log_score(p, targets).mean()), 2))
        0.76
        0.6

    Reference: Stone, Cross-validatory choice and assessment of statistical predictions, Journal of
    the Royal Statistical Society B 1974.
    """
    data = data_outside_jit("cross_fit", predictions, targets, rows, folds, covariates)
    in_order = rows.get("times") is not None
    if np.ndim(folds) > 0 and data.is_dependent:
        name = "times" if in_order or data.clusters is None else "clusters"
        raise ValueError(f"{name} must be None with the fold of each row, got an array.")
    return _cross_fit(data, method, folds, in_order, groups, covariates, lower)


def _cross_fit(
    data: Data,
    method: str | Callable[[Data], Any],
    folds: int | ArrayLike,
    in_order: bool = False,
    groups: NamedColumns | None = None,
    covariates: CovariatesLike | None = None,
    lower: float | None = None,
) -> Any:
    """`cross_fit` of checked data, whose clusters may be times.

    A function in place of a method makes new predictions of all rows by a map that is fitted to the
    rows which it gets.
    """
    kept = np.ones(data.n, bool) if data.where is None else np.asarray(data.where)
    fold, found = numbers_of_folds(folds, data, in_order), []
    for k in range(fold.max() + 1):
        others = data.replace(where=kept & (fold != k))
        if callable(method):
            found.append(method(others))
        else:
            recalibrator = fit_map(others, method, in_order, groups, covariates, lower)
            found.append(recalibrator(data.predictions, groups, covariates))

    def chosen(*parts: Any) -> Any:
        stacked = np.stack([np.asarray(x) for x in parts])
        return jnp.asarray(stacked[fold, np.arange(len(fold))])

    return jax.tree.map(chosen, *found)


class HeldOut(NamedTuple):
    """What maps do to rows that did not fit them.

    Args:
        predictions: after `cross_fit`; normal ones that "shift_scale" has recalibrated are normal.
        before: the score of each row before, ``[n]``.
        after: and after it.
    """

    predictions: Any
    before: np.ndarray
    after: np.ndarray


def held_out(
    data: Data,
    method: str | Callable[[Data], Any],
    folds: int | np.ndarray,
    *,
    score: str | None = None,
    **options: Any,
) -> HeldOut:
    """`_cross_fit` of checked data, judged by a score: "log", "brier" or "crps".

    By default it is the log score of labels, and else the CRPS.
    """
    found = _cross_fit(data, method, folds, **options)
    if isinstance(data.predictions, Normal) and method in ("shift_scale", "nothing"):
        found = as_normal(found)
    return HeldOut(found, *(row_scores(p, data.targets, score) for p in (data.predictions, found)))


def row_scores(predictions: Distribution, targets: Any, score: str | None = None) -> np.ndarray:
    """The score of each row, ``[n]``; by default the log score of labels, and else the CRPS."""
    score = score or ("log" if predictions.has_labels else "crps")
    if score == "brier":
        return brier_scores(np.asarray(predictions.label_probabilities(), float), targets)
    of_rows = log_score if score == "log" else crps
    return np.asarray(of_rows(predictions, targets), np.float64)


def brier_scores(probs: np.ndarray, targets: Any) -> np.ndarray:
    """(p - y)^2 of two classes, and of more the sum of squares over all classes, ``[n]``."""
    m = probs.shape[1]
    squares = np.sum(np.square(probs - np.eye(m)[np.asarray(targets).astype(int)]), axis=1)
    return squares / 2 if m == 2 else squares
