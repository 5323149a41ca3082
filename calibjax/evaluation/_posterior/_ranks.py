"""Ranks of true values among draws as normal scores: shift, spread, and what chance does."""

import functools
from typing import Any, NamedTuple

import numpy as np

from calibjax._data import numbered, typed_column
from calibjax.segments import means_of_ranks

# Numbers are cut into so many groups of equal size.
_N_GROUPS = 8
# Larger factors of a spread show hardly more.
_MOST_FACTOR = 20.0


class Chance(NamedTuple):
    """P-values of a shift and a spread by themselves."""

    shift: float
    spread: float


def normal_scores(true: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The normal scores z of the ranks of true values among the draws, and z^2, ``[2, n]``.

    A true value may have any rank among the draws that are equal to it.  If all are as likely, as
    with ties in random order, the rank of a right posterior is even on 0, …, S, and so means of z
    and z^2 over these ranks are on average what they are without ties.
    """
    right = _right(drawn.shape[1])
    sums = np.cumsum(np.pad([right, right**2], ((0, 0), (1, 0))), axis=1)
    first = np.sum(drawn < true[:, None], axis=1)
    end = np.sum(drawn <= true[:, None], axis=1) + 1
    return (sums[:, end] - sums[:, first]) / (end - first)


def shift_and_spread(scores: np.ndarray, n_draws: int) -> tuple[float, float]:
    """The mean and the root mean square, the latter in units of a right posterior's."""
    shift, square = np.mean(scores, axis=1)
    # Rounding leaves a little, of either sign, of what is 0.
    shift = round(float(shift), 12) + 0.0
    return shift, float(np.sqrt(square / np.mean(_right(n_draws) ** 2)))


def has_few_values(true: np.ndarray) -> bool:
    """Whether a parameter is a count or a category: fewer values than half of the simulations."""
    return 2 * np.unique(true).size < true.size


def factor_of(spread: float, n_draws: int) -> float:
    """By how much true values lie wider than normal draws whose ranks have such a spread.

    Ranks among few draws say less than this factor, since no score is beyond the last.
    """
    return spread if n_draws < 2 else float(np.interp(spread, *_factors(n_draws)))


@functools.lru_cache(maxsize=8)
def _factors(n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Increasing spreads of ranks, and the factors that give them."""
    factors, squares = np.geomspace(1 / _MOST_FACTOR, _MOST_FACTOR, 301), _right(n_draws) ** 2
    found = means_of_ranks(n_draws)(squares, np.zeros_like(factors), factors)
    return np.sqrt(found / np.mean(squares)), factors


def chance_of(shift: float, spread: float, n: int, n_draws: int, rows: Any = None) -> Chance:
    """How often right posteriors have such a shift, and such a spread, in the normal approximation.

    A shift makes the spread larger, too: the p-value of the spread is 1 if the spread around the
    shift does not err to the same side, and else the larger one of both spreads.

    Args:
        shift, spread: as in `shift_and_spread`.
        n: the number of simulations.
        n_draws: the number of draws of each posterior, S.
        rows: true values ``[n]`` and draws ``[n, S]``, of which some may be equal; None if none is.
    """
    from scipy.special import ndtr  # imported where it is used, as SciPy takes long to import

    size = np.mean(_right(n_draws) ** 2)
    pool = np.arange(n_draws + 1)[None] if rows is None else np.column_stack(rows)
    of_mean, of_square = _deviations(np.sort(pool, axis=1))
    excesses = spread**2 - 1, spread**2 - shift**2 / size - 1
    of_shift = abs(shift) * np.sqrt(n) / of_mean
    of_spread = 0.0
    if excesses[0] * excesses[1] > 0:
        of_spread = min(map(abs, excesses)) * size * np.sqrt(n) / of_square
    return Chance(*(2 * float(ndtr(-z)) for z in (of_shift, of_spread)))


def _deviations(pool: np.ndarray) -> tuple[float, float]:
    """The standard deviations of z and z^2 if any of the values in a row may be the true one.

    Values that are equal share the mean of their scores.

    Args:
        pool: true values and draws, ``[n, S + 1]``, in the order of each row.
    """
    groups = np.cumsum(np.diff(pool, axis=1, prepend=np.nan) != 0) - 1
    right, sizes = _right(pool.shape[1] - 1), np.bincount(groups)

    def deviation(x: np.ndarray) -> float:
        sums = np.bincount(groups, np.tile(x, len(pool)))
        # Rounding leaves a little of what is 0.
        variance = np.sum(sums**2 / sizes) / pool.size - np.mean(x) ** 2
        return float(np.sqrt(max(variance, 1e-12)))

    return deviation(right), deviation(right**2)


def chance_in_column(scores: np.ndarray, column: np.ndarray) -> float:
    """How often scores vary so much between groups of a column, in mean or in mean square.

    The p-value is that of a chi-squared distribution, the lesser of both doubled.
    """
    from scipy.special import chdtrc

    n, n_groups = len(column), _N_GROUPS
    levels, codes = numbered(typed_column("x", column, n).values)
    if levels.dtype.kind != "O":
        codes = np.searchsorted(np.sort(codes), codes) * n_groups // n
    counts = np.bincount(codes)
    n_groups = int(np.sum(counts > 0))
    if n_groups < 2:
        return 1.0
    pvalues = []
    for values in scores:
        deviations = values - np.mean(values)
        sums = np.bincount(codes, deviations)
        between = np.sum(sums**2 / np.maximum(counts, 1))
        variance = np.mean(deviations**2)
        pvalues.append(float(chdtrc(n_groups - 1, between / variance)) if variance else 1.0)
    return min(1.0, 2 * min(pvalues))


def _right(n_draws: int) -> np.ndarray:
    """The scores of the ranks 0 … S, which a right posterior has equally often."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(n_draws + 1) + 0.5) / (n_draws + 1)))
