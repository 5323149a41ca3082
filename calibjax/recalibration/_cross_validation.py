"""Parts of the rows that are left out in turn, and mixtures by what is predicted of them."""

from typing import Any

import numpy as np

from calibjax._base.check import check_array, check_integer, check_shapes
from calibjax._data.data import Data

#: The least number of rows with a choice: parts of fewer have hardly a target in the tails.
LEAST_ROWS = 20


def parts_of(data: Data, kept: np.ndarray, count: int) -> np.ndarray | None:
    """The number of the part of each kept row, from 0; None if no row depends on another one.

    Clusters go to parts by chance, and times in their order, since what is near in time may be
    alike.

    Args:
        data: checked rows.
        kept: which rows count, ``[n]``.
        count: how many parts there are, unless there are fewer clusters or times.
    """
    units = _units_of(data, kept)
    if units is None:
        return None
    n_units = int(units.max()) + 1
    if n_units < 2:
        raise ValueError("clusters or times must have at least 2 different values, got 1.")
    return _parts(units, data, min(count, n_units))


def numbers_of_folds(folds: Any, data: Data) -> np.ndarray:
    """The number of the fold of each row, from 0, ``[n]``: given, or as `parts_of` makes them."""
    if np.ndim(folds) > 0:
        check_array("folds", folds, "integer")
        check_shapes({"folds": (folds, "n")}, {"n": data.n})
        numbers, fold = np.unique(np.asarray(folds), return_inverse=True)
        if numbers.size < 2:
            raise ValueError("folds must hold at least 2 different numbers, got 1.")
        return fold
    units = _units_of(data, np.ones(data.n, bool))
    units = np.arange(data.n) if units is None else units
    n_units = int(units.max()) + 1
    count = check_integer("folds", folds, 2, n_units, "the number of rows, clusters or times, ")
    return _parts(units, data, count)


def _units_of(data: Data, kept: np.ndarray) -> np.ndarray | None:
    """The number of the cluster or of the time of each kept row, in their order, from 0."""
    given = data.clusters if data.times is None else data.times
    return None if given is None else np.unique(np.asarray(given)[kept], return_inverse=True)[1]


def _parts(units: np.ndarray, data: Data, count: int) -> np.ndarray:
    n_units = int(units.max()) + 1
    if data.horizon is not None:  # Clusters may be times without one, which is 0 then.
        return units * count // n_units
    return (np.random.default_rng(0).permutation(n_units) % count)[units]


# The least share of a candidate in a mixture.
_SMALL_SHARE = 0.02


def in_words(names: tuple[str, ...], shares: np.ndarray) -> tuple[dict[str, float], str]:
    """The candidates without those of small shares, the largest first, and in words."""
    shares = np.where(shares < _SMALL_SHARE, 0.0, shares)
    shares /= shares.sum()
    order = [k for k in np.argsort(-shares, kind="stable") if shares[k] > 0]
    chosen = {names[k]: float(shares[k]) for k in order}
    return chosen, " + ".join([f"{share:.2f} {name}" for name, share in chosen.items()])


def mixture_weights(probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The shares s >= 0 of sum 1 that maximise the mean of log(P s), by EM; P is ``[n, k]``."""
    share = weights / weights.sum()
    # A common factor of a row changes nothing, and the largest probability must not underflow.
    ratios = probabilities / probabilities.max(axis=1, keepdims=True)
    shares = np.full(ratios.shape[1], 1 / ratios.shape[1])
    for _ in range(2000):
        new = shares * ((share / (ratios @ shares)) @ ratios)
        change, shares = np.abs(new - shares).max(), new / new.sum()
        if change < 1e-7:
            break
    return shares


def least_squares_weights(
    values: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The shares s >= 0 of sum 1 with the least sum of w (V s - t)^2; V is ``[n, k]``."""
    from scipy.optimize import nnls

    root = np.sqrt(weights / weights.sum())
    # A row with the sum of the shares, which counts so much that the sum is 1 up to rounding.
    factor = 1e3 * max(1.0, float(np.abs(values).max()))
    rows = np.vstack([root[:, None] * values, np.full(values.shape[1], factor)])
    shares, _ = nnls(rows, np.append(root * targets, factor))
    return shares / shares.sum()


def is_clear(gains: np.ndarray, errors: float = 1.0) -> bool:
    """Whether a sum of gains in parts is larger than `errors` of its standard errors."""
    return bool(gains.sum() > errors * np.sqrt(gains.size) * np.std(gains, ddof=1))
