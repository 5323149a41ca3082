"""Predictions that are recalibrated by maps which did not see their rows."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._rows import CovariatesLike, Dependence, NamedColumns, as_data
from calibjax._struct import is_traced
from calibjax.recalibration._fit_recalibrator import fit_recalibrator
from calibjax.recalibration._folds import numbers_of_folds


def cross_fit(
    predictions: Distribution,
    targets: ArrayLike,
    method: str,
    folds: int | ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    groups: NamedColumns | None = None,
    weights: ArrayLike | None = None,
    covariates: CovariatesLike | None = None,
    times: ArrayLike | None = None,
    lower: float | None = None,
) -> Any:
    """Recalibrated predictions of all rows, each by a map that was fitted without its fold.

    All rows judge the method then, and none has fitted the map that mends it: log scores, tests and
    `evaluate` are honest, but for this: the maps see a part of the rows only, and one map for later
    is fitted to all of them by `fit_recalibrator`.

    Args:
        predictions: a batch of n predictions that `fit_recalibrator` takes.
        targets: array ``[n]``.
        method: as in `fit_recalibrator`.
        folds: a number of folds of 2 or more, to which rows (or clusters) go by chance, always the
            same, and times in blocks of consecutive ones; or the number of the fold of each row,
            integers ``[n]``.
        clusters: numbers of clusters, integers ``[n]``; rows of one, which may depend on each
            other, stay together, in the parts that "auto" leaves out, too.  Only with a number of
            folds.
        groups: as in `fit_recalibrator`.
        weights: how much each row counts in the fits, nonnegative numbers ``[n]``; a row of weight
            0 fits no map, and is mended.
        covariates: as in `fit_recalibrator`.
        times: numbers ``[n]``, such as days; rows of one time stay together, as those of clusters
            do.  Only with a number of folds, and not with clusters.
        lower: as in `fit_recalibrator`.

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
        >>> mended = cj.cross_fit(predictions, targets, "temperature", 5)
        >>> for p in (predictions, mended):
        ...     print(round(float(cj.log_score(p, targets).mean()), 2))
        0.76
        0.6

    Reference: Stone, Cross-validatory choice and assessment of statistical predictions, Journal of
    the Royal Statistical Society B 1974.
    """
    given = predictions, targets, folds, clusters, weights, covariates, times
    if is_traced(given):
        raise TypeError("cross_fit must be called outside of jit, got traced arguments.")
    data = as_data(predictions, targets)
    fold = numbers_of_folds(folds, Dependence(clusters, times), data)
    options = FitOptions(weights, groups, covariates, clusters, times, lower)
    return out_of_folds(predictions, targets, method, fold, options)


class FitOptions(NamedTuple):
    """Arguments of `fit_recalibrator`, of all rows."""

    weights: ArrayLike | None = None
    groups: NamedColumns | None = None
    covariates: CovariatesLike | None = None
    clusters: ArrayLike | None = None
    times: ArrayLike | None = None
    lower: float | None = None


def out_of_folds(
    predictions: Distribution,
    targets: ArrayLike,
    method: str,
    fold: np.ndarray,
    options: FitOptions,
) -> Any:
    """Predictions of each row by a map without its fold, which is a number from 0, ``[n]``."""
    mended = []
    for k in range(fold.max() + 1):
        recalibrator = fit_recalibrator(
            predictions, targets, method, where=fold != k, **options._asdict()
        )
        mended.append(recalibrator(predictions, options.groups, options.covariates))

    def chosen(*parts: Any) -> Any:
        stacked = np.stack([np.asarray(x) for x in parts])
        return jnp.asarray(stacked[fold, np.arange(len(fold))])

    return jax.tree.map(chosen, *mended)
