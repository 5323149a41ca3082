"""Parts of the rows that are left out in turn, and mixtures by what is predicted of them."""

from collections.abc import Sequence
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


def units_of(data: Data, kept: np.ndarray) -> np.ndarray:
    """The number of the cluster, of the time, or of the kept row itself, from 0."""
    units = _units_of(data, kept)
    return np.arange(int(kept.sum())) if units is None else units


def numbers_of_folds(folds: Any, data: Data) -> np.ndarray:
    """The number of the fold of each row, from 0, ``[n]``: given, or as `parts_of` makes them."""
    if np.ndim(folds) > 0:
        check_array("folds", folds, "integer")
        check_shapes({"folds": (folds, "n")}, {"n": data.n})
        numbers, fold = np.unique(np.asarray(folds), return_inverse=True)
        if numbers.size < 2:
            raise ValueError("folds must hold at least 2 different numbers, got 1.")
        return fold
    units = units_of(data, np.ones(data.n, bool))
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
    return random_parts(n_units, count)[units]


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


def is_clear(gains: np.ndarray, errors: float = 1.0) -> bool:
    """Whether a sum of gains in parts is larger than `errors` of its standard errors."""
    if gains.size < 2:
        return False
    return bool(gains.sum() > errors * np.sqrt(gains.size) * np.std(gains, ddof=1))


def choose_in_turn(
    before: np.ndarray,
    found: Sequence[np.ndarray],
    weights: np.ndarray,
    part: np.ndarray,
    must: bool = False,
) -> int | None:
    """The number of the last map that is better than the one chosen before it; None for no map.

    Better is by more than a standard error of the gains in parts.  The chosen map must also be
    better than none, unless there `must` be a map.

    Args:
        before: scores of the rows without a map, ``[n]``.
        found: scores of the rows after each map, which was fitted without their part, from simple
            maps to complex ones.
        weights, part: how much each row counts, and its part, ``[n]``.
    """
    sums = [np.bincount(part, weights * x) for x in (before, *found)]
    best = 0
    for k in range(1, len(sums)):
        best = k if k == 1 or is_clear(sums[best] - sums[k]) else best
    return best - 1 if best and (must or is_clear(sums[0] - sums[best])) else None


def mean_change(
    before: np.ndarray, after: np.ndarray, weights: np.ndarray, part: np.ndarray
) -> tuple[float, float, float] | None:
    """The mean of after - before of rows, and its interval of 95 % by t of the means of parts.

    NaN are rows that are not known; with fewer than 2 parts there is None.
    """
    from scipy.special import stdtrit

    known = np.isfinite(after)
    change, share = (after - before)[known], weights[known] / weights[known].sum()
    mean, sums = float(share @ change), np.bincount(part[known], share * change)
    count = np.bincount(part[known], share)
    if sums.size < 2:
        return None
    error = np.sqrt(np.sum((sums - count * mean) ** 2) * sums.size / (sums.size - 1))
    reach = float(stdtrit(sums.size - 1, 0.975) * error)
    return mean, mean - reach, mean + reach


def random_parts(n: int, count: int) -> np.ndarray:
    """The number of the part of each row ``[n]``, by chance, always the same."""
    return np.random.default_rng(0).permutation(n) % min(count, n)
