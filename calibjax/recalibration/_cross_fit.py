"""Predictions that are recalibrated by maps which did not see their rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_array, check_integer, check_shapes
from calibjax._distribution import Distribution
from calibjax._rows import NamedColumns, check_data
from calibjax._struct import is_traced
from calibjax.recalibration._fit_recalibrator import fit_recalibrator


def cross_fit(
    predictions: Distribution,
    targets: ArrayLike,
    method: str,
    folds: int | ArrayLike,
    *,
    clusters: ArrayLike | None = None,
    groups: NamedColumns | None = None,
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
            same; or the number of the fold of each row, integers ``[n]``, such as weeks in blocks.
        clusters: numbers of clusters, integers ``[n]``; rows of one, which may depend on each
            other, stay together.  Only with a number of folds.
        groups: as in `fit_recalibrator`.

    Returns:
        What the maps make of the predictions, in the order of the rows.

    Raises:
        TypeError, ValueError: as `fit_recalibrator`; fewer than 2 folds, or more than there are
            rows or clusters; clusters with given folds.

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
    if is_traced((predictions, targets, folds, clusters)):
        raise TypeError("cross_fit must be called outside of jit, got traced arguments.")
    n = check_data(predictions, targets).n
    fold = numbers_of_folds(folds, clusters, n)
    mended = [
        fit_recalibrator(predictions, targets, method, where=fold != k, groups=groups)(
            predictions, groups
        )
        for k in range(fold.max() + 1)
    ]

    def chosen(*parts: Any) -> Any:
        stacked = np.stack([np.asarray(x) for x in parts])
        return jnp.asarray(stacked[fold, np.arange(n)])

    return jax.tree.map(chosen, *mended)


def numbers_of_folds(folds: Any, clusters: Any, n: int) -> np.ndarray:
    """The number of the fold of each row, from 0, ``[n]``."""
    if np.ndim(folds) > 0:
        check_array("folds", folds, "integer")
        check_shapes({"folds": (folds, "n")}, {"n": n})
        if clusters is not None:
            raise ValueError("clusters must be None with the fold of each row, got an array.")
        numbers, fold = np.unique(np.asarray(folds), return_inverse=True)
        if numbers.size < 2:
            raise ValueError("folds must hold at least 2 different numbers, got 1.")
        return fold
    units = np.arange(n)
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": n})
        units = np.unique(np.asarray(clusters), return_inverse=True)[1]
    n_units = int(units.max()) + 1
    count = check_integer("folds", folds, 2, n_units, "the number of rows or clusters, ")
    by_chance = np.random.default_rng(0).permutation(n_units) % count
    return by_chance[units]
