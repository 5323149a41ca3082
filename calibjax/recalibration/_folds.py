"""Which rows count, and parts of them that are left out in turn, with what depends together."""

from typing import Any

import numpy as np

from calibjax._check import check_array, check_integer, check_shapes
from calibjax._rows import Data, Dependence, with_dependence


def numbers_of_folds(folds: Any, dependence: Dependence, data: Data) -> np.ndarray:
    """The number of the fold of each row, from 0, ``[n]``: given, or as `parts_of` makes them."""
    if np.ndim(folds) > 0:
        check_array("folds", folds, "integer")
        check_shapes({"folds": (folds, "n")}, {"n": data.n})
        for name in ("clusters", "times"):
            if getattr(dependence, name) is not None:
                raise ValueError(f"{name} must be None with the fold of each row, got an array.")
        numbers, fold = np.unique(np.asarray(folds), return_inverse=True)
        if numbers.size < 2:
            raise ValueError("folds must hold at least 2 different numbers, got 1.")
        return fold
    units = _units_of(data, dependence, np.ones(data.n, bool), 2)
    if units is None:
        units = np.arange(data.n)
    n_units = int(units.max()) + 1
    count = check_integer("folds", folds, 2, n_units, "the number of rows, clusters or times, ")
    return _parts(units, dependence, count)


def parts_of(
    data: Data, dependence: Dependence, kept: np.ndarray, count: int, is_used: bool
) -> np.ndarray | None:
    """The number of the part of each kept row, from 0; None if no row depends on another one.

    Clusters go to parts by chance.  Times are cut into parts of consecutive ones, since what is
    near in time may be alike.

    Args:
        data: checked rows.
        dependence: clusters, or times without a horizon.
        kept: which rows count, ``[n]``.
        count: how many parts there are, unless there are fewer clusters or times.
        is_used: whether parts are left out, for which there must be two at least.
    """
    units = _units_of(data, dependence, kept, 2 if is_used else 1)
    if units is None:
        return None
    return _parts(units, dependence, min(count, int(units.max()) + 1))


def counted(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Which rows count, and how much each ``[n]``, in units of the largest weight."""
    kept = data.counted_rows()
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, float)
    return kept, every / every[kept].max()


def _units_of(
    data: Data, dependence: Dependence, kept: np.ndarray, at_least: int
) -> np.ndarray | None:
    """The number of the cluster or of the time of each kept row, in their order, from 0."""
    given = with_dependence(data, dependence, at_least).clusters
    if given is None:
        return None
    return np.unique(np.asarray(given)[kept], return_inverse=True)[1]


def _parts(units: np.ndarray, dependence: Dependence, count: int) -> np.ndarray:
    """Consecutive times, and all else by chance."""
    n_units = int(units.max()) + 1
    if dependence.times is not None:
        return units * count // n_units
    return (np.random.default_rng(0).permutation(n_units) % count)[units]
