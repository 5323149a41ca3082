"""Ranks of true values among draws as normal scores: shift, spread, and what chance does."""

from typing import NamedTuple

import numpy as np

from calibjax._rows import numbered, typed_column

# Numbers are cut into so many groups of equal size.
_N_GROUPS = 8


class Chance(NamedTuple):
    """P-values of a shift and a spread by themselves."""

    shift: float
    spread: float


def normal_scores(true: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """The normal scores of the ranks, ``[n]``; ties count half."""
    below = np.sum(drawn < true[:, None], axis=1) + np.sum(drawn == true[:, None], axis=1) / 2
    return _scores(below, drawn.shape[1])


def shift_and_spread(scores: np.ndarray, n_draws: int) -> tuple[float, float]:
    """The mean and the root mean square, the latter in units of a right posterior's."""
    right = _right(n_draws)
    return float(np.mean(scores)), float(np.sqrt(np.mean(scores**2) / np.mean(right**2)))


def chance_of(shift: float, spread: float, n: int, n_draws: int) -> Chance:
    """How often right posteriors have such a shift, and such a spread, by normal laws.

    A shift makes the spread larger, too: the p-value of the spread is 1 if the spread around the
    shift does not err to the same side, and else the larger one of both spreads.
    """
    from scipy.special import ndtr  # imported where it is used, as SciPy takes long to import

    squares = _right(n_draws) ** 2
    size = np.mean(squares)
    of_shift = abs(shift) * np.sqrt(n / size)
    error = np.std(squares / size)
    excesses = spread**2 - 1, spread**2 - shift**2 / size - 1
    of_spread = 0.0
    if error and excesses[0] * excesses[1] > 0:
        of_spread = min(map(abs, excesses)) * np.sqrt(n) / error
    return Chance(*(2 * float(ndtr(-z)) for z in (of_shift, of_spread)))


def chance_in_column(scores: np.ndarray, column: np.ndarray) -> float:
    """How often scores vary so much between groups of a column, in mean or in mean square.

    The p-value is that of a chi-squared law, the lesser of both doubled.
    """
    from scipy.special import chdtrc

    n, n_groups = len(scores), _N_GROUPS
    levels, places = numbered(typed_column("x", column, n).values)
    if levels.dtype.kind != "O":
        places = np.searchsorted(np.sort(places), places) * n_groups // n
    counts = np.bincount(places)
    n_groups = int(np.sum(counts > 0))
    if n_groups < 2:
        return 1.0
    pvalues = []
    for values in (scores, scores**2):
        deviations = values - np.mean(values)
        sums = np.bincount(places, deviations)
        between = np.sum(sums**2 / np.maximum(counts, 1))
        variance = np.mean(deviations**2)
        pvalues.append(float(chdtrc(n_groups - 1, between / variance)) if variance else 1.0)
    return min(1.0, 2 * min(pvalues))


def _scores(below: np.ndarray, n_draws: int) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(ndtri((below + 0.5) / (n_draws + 1)))


def _right(n_draws: int) -> np.ndarray:
    """The scores of the ranks 0 … S, which a right posterior has equally often."""
    return _scores(np.arange(n_draws + 1), n_draws)
