"""Which rows count, and parts of them that are left out in turn, with what depends together."""

from typing import Any

import numpy as np

from calibjax._check import check_array, check_integer, check_shapes
from calibjax._rows import Data, Dependence, counted_rows, with_dependence


def numbers_of_folds(folds: Any, clusters: Any, n: int) -> np.ndarray:
    """The number of the fold of each row, from 0, ``[n]``: given, or by chance."""
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
    return _by_chance(units, count)


def parts_of(data: Data, dependence: Dependence, kept: np.ndarray, count: int) -> np.ndarray | None:
    """The number of the part of each kept row, from 0; None if no row depends on another one.

    Clusters go to parts by chance.  Times are cut into parts of consecutive ones, since what is
    near in time may be alike.

    Args:
        data: checked rows.
        dependence: clusters, or times without a horizon.
        kept: which rows count, ``[n]``.
        count: how many parts there are, unless there are fewer clusters or times.
    """
    given = with_dependence(data, dependence).clusters
    if given is None:
        return None
    units = np.unique(np.asarray(given)[kept], return_inverse=True)[1]
    n_units = int(units.max()) + 1
    if dependence.times is not None:
        return units * min(count, n_units) // n_units
    return _by_chance(units, min(count, n_units))


def counted(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Which rows count, and how much each ``[n]``, in units of the largest weight."""
    kept = counted_rows(data)
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, float)
    return kept, every / every[kept].max()


def _by_chance(units: np.ndarray, count: int) -> np.ndarray:
    order = np.random.default_rng(0).permutation(int(units.max()) + 1)
    return (order % count)[units]
