"""Parts of the rows that are held out in turn, and choices and mixtures by their scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibjax._base.check import check_array, check_integer, check_shapes
from calibjax._data.data import Data

#: Minimum number of rows for a choice: parts of fewer have hardly any target in the tails.
LEAST_ROWS = 20


def parts_of(data: Data, kept: np.ndarray, count: int) -> np.ndarray | None:
    """The part of each kept row, from 0; None for independent rows.

    Clusters are assigned at random; times are in order, because neighbouring rows may be similar.

    Args:
        data: checked rows.
        kept: mask of the rows that count, ``[n]``.
        count: the number of parts, at most that of clusters or times.
    """
    units = _units_of(data, kept)
    if units is None:
        return None
    n_units = int(units.max()) + 1
    if n_units < 2:
        raise ValueError("clusters or times must have at least 2 different values, got 1.")
    return _parts(units, data, min(count, n_units))


def units_of(data: Data, kept: np.ndarray) -> np.ndarray:
    """The cluster, the time, or the number of each kept row, from 0."""
    units = _units_of(data, kept)
    return np.arange(int(kept.sum())) if units is None else units


def numbers_of_folds(folds: Any, data: Data) -> np.ndarray:
    """The fold of each row, from 0, ``[n]``: as given, or as in `parts_of`."""
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
    """The cluster or the time of each kept row, in order, from 0."""
    given = data.clusters if data.times is None else data.times
    return None if given is None else np.unique(np.asarray(given)[kept], return_inverse=True)[1]


def _parts(units: np.ndarray, data: Data, count: int) -> np.ndarray:
    n_units = int(units.max()) + 1
    if data.horizon is not None:  # Clusters may be times without one, which is 0 then.
        return units * count // n_units
    return random_parts(n_units, count)[units]


# Minimum share of a candidate in a mixture.
_SMALL_SHARE = 0.02


def in_words(names: tuple[str, ...], shares: np.ndarray) -> tuple[dict[str, float], str]:
    """The candidates without small shares, the largest first, and as text."""
    shares = np.where(shares < _SMALL_SHARE, 0.0, shares)
    shares /= shares.sum()
    order = [k for k in np.argsort(-shares, kind="stable") if shares[k] > 0]
    chosen = {names[k]: float(shares[k]) for k in order}
    return chosen, " + ".join([f"{share:.2f} {name}" for name, share in chosen.items()])


def mixture_weights(probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The shares s >= 0 of sum 1 that maximise the mean of log(P s), by EM; P is ``[n, k]``."""
    share = weights / weights.sum()
    # A common factor of a row cancels; with this one the largest probability cannot underflow.
    ratios = probabilities / probabilities.max(axis=1, keepdims=True)
    shares = np.full(ratios.shape[1], 1 / ratios.shape[1])
    for _ in range(2000):
        new = shares * ((share / (ratios @ shares)) @ ratios)
        change, shares = np.abs(new - shares).max(), new / new.sum()
        if change < 1e-7:
            break
    return shares


def is_clear(gains: np.ndarray, errors: float = 1.0) -> bool:
    """Whether a sum of gains in parts exceeds `errors` of its standard errors."""
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
    """Chooses a map: the last one that is better than the one chosen before it; None for no map.

    Better means by more than a standard error between parts.  The chosen map must also be better
    than no map, unless `must`.

    Args:
        before: scores of rows without a map, ``[n]``.
        found: held-out scores of rows after each map, ``[n]``, from simple maps to complex ones.
        weights, part: the weight and the part of each row, ``[n]``.
        must: whether some map must be chosen.
    """
    sums = [np.bincount(part, weights * x) for x in (before, *found)]
    best = 0
    for k in range(1, len(sums)):
        best = k if k == 1 or is_clear(sums[best] - sums[k]) else best
    return best - 1 if best and (must or is_clear(sums[0] - sums[best])) else None


def mean_change(
    before: np.ndarray, after: np.ndarray, weights: np.ndarray, part: np.ndarray
) -> tuple[float, float, float] | None:
    """The mean of after - before, and its 95 % interval by Student's t of the means of parts.

    NaN marks unknown rows; None with fewer than 2 parts.
    """
    from scipy.special import stdtrit

    known = np.isfinite(after)
    change, share = (after - before)[known], weights[known] / weights[known].sum()
    mean, sums = float(share @ change), np.bincount(part[known], share * change)
    count = np.bincount(part[known], share)
    if sums.size < 2:
        return None
    variance = np.sum((sums - count * mean) ** 2) * sums.size / (sums.size - 1)
    # Maps of different parts share rows: Nadeau and Bengio (2003) add the ratio of rows that are
    # left out to rows of the fit, 1 / (P - 1), to the 1 / P of a mean of P parts.
    error = np.sqrt(variance * (1 + sums.size / (sums.size - 1)))
    reach = float(stdtrit(sums.size - 1, 0.975) * error)
    return mean, mean - reach, mean + reach


def random_parts(n: int, count: int) -> np.ndarray:
    """Random parts of rows ``[n]``, with a fixed seed."""
    return np.random.default_rng(0).permutation(n) % min(count, n)
