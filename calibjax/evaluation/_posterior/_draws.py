"""Draws of posteriors: ranks of true values among them, what chance does, and what looks wrong.

Ranks are normal scores, of which the shift and the spread are told.
"""

import functools
import itertools
import math
from collections.abc import Mapping

import numpy as np

from calibjax._data.typed_column import numbered, typed_column
from calibjax.evaluation._posterior._read_simulations import any_of, counted
from calibjax.segments import means_of_ranks

#: True values ``[n]`` and draws ``[n, S]``.
Rows = tuple[np.ndarray, np.ndarray]
# The number of groups of equal size that numbers are cut into.
_N_GROUPS = 8
# Maximum factor of a spread: larger ones show hardly more.
_MOST_FACTOR = 20.0
# Maximum share of common draws: with more, calibrated posteriors are rejected too often.
_MOST_SHARED = 0.1
# The number of steps for the sum of autocorrelations, and the maximum share that is added again.
_N_ROUNDS, _LARGEST_SHARE = 10, 0.2


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
    """The mean and the root mean square, the latter in units of a calibrated posterior's."""
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


def chance_of(
    shift: float, spread: float, n: int, n_draws: int, rows: Rows | None = None
) -> tuple[float, float]:
    """The p-values of a shift and of a spread, in the normal approximation.

    A shift also enlarges the spread: the p-value of the spread is 1 if the spread around the shift
    does not err to the same side, else the larger of both p-values.

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
    return 2 * float(ndtr(-of_shift)), 2 * float(ndtr(-of_spread))


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
    """The p-value of the variation of scores between groups of a column, in mean or in mean square.

    It is that of a chi-squared distribution, twice the lesser of both.
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
    """The scores of the ranks 0 … S, which are equally likely for a calibrated posterior."""
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(n_draws + 1) + 0.5) / (n_draws + 1)))


def stuck(found: Mapping[str, Rows], names: np.ndarray) -> list[str]:
    """A sentence on simulations whose draws are all equal, and not equal to the true value.

    Draws of a parameter with few values may be equal because its posterior is sure.
    """
    is_stuck = any_of(
        (drawn == drawn[:, :1]).all(axis=1) & (drawn[:, 0] != true)
        for true, drawn in found.values()
        if drawn.shape[1] > 1 and not has_few_values(true)
    )
    if not np.any(is_stuck):
        return []
    return [
        "The draws of a parameter are all equal, and not equal to its true value, in "
        f"{counted(names[is_stuck])}, as of a sampler that is stuck."
    ]


def swapped(found: Mapping[str, Rows]) -> list[str]:
    """A sentence if draws ``[n, n]`` look as if draws were their first axis."""

    def tells(true: np.ndarray, means: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            return float(np.corrcoef(true, means)[0, 1]) * len(true) ** 0.5

    if any(drawn.shape[0] != drawn.shape[1] for _, drawn in found.values()):
        return []
    along = [tells(true, drawn.mean(axis=1)) for true, drawn in found.values()]
    across = [tells(true, drawn.mean(axis=0)) for true, drawn in found.values()]
    if max(along) < 3 and max(across) > 5:
        return [
            "There are as many draws as simulations, and posteriors look like the prior, but means "
            "over the first axis go with theta: are the axes of draws swapped? "
            "numpy.swapaxes(draws, 0, 1) swaps them back."
        ]
    return []


def shared(found: Mapping[str, Rows]) -> list[str]:
    """A sentence if posteriors of different simulations have the same draws.

    Neighbours are compared by their medians of the first parameter whose true values all differ,
    which excludes integers and categories.
    """
    for true, drawn in found.values():
        if len(np.unique(true)) < len(true):
            continue
        ordered = drawn[np.argsort(np.median(drawn, axis=1))]
        common = [np.intersect1d(*pair).size for pair in itertools.pairwise(ordered)]
        share = float(np.mean(common)) / drawn.shape[1]
        if share <= _MOST_SHARED:
            return []
        return [
            f"Similar simulations share draws, {100 * share:.0f} % of them, as from one bank of "
            "simulations: neighbours share chance errors, so that calibrated "
            "posteriors may be rejected. Give each simulation a bank of its own."
        ]
    return []


def effective_draws(drawn: np.ndarray, n_chains: int) -> float:
    """S over the sum tau of the autocorrelations of the ranks of draws, at most S.

    Correlations are means over all simulations and chains.  As Geyer's (1992), the sum ends before
    the first pair of neighbouring lags whose sum is not positive.  The mean rank of S draws does
    not vary, which takes some (1 - rho) tau / S from each correlation rho: it is added again.

    Args:
        drawn: ``[n, S]``, one chain after the other.
        n_chains: the number of chains, which are equally long.
    """
    n, n_draws = drawn.shape
    # In the order of the draws, ties would ascend; their mean rank is that of both orders.
    ranks = (_ordered_ranks(drawn) + _ordered_ranks(drawn[:, ::-1])[:, ::-1]) / 2
    # Draws that are all equal have no order.
    moving = drawn.max(axis=1) > drawn.min(axis=1)
    chains = (ranks[moving] - (n_draws - 1) / 2).reshape(-1, n_draws // n_chains)
    length = chains.shape[1]
    if not chains.size or length < 4:
        return float(n_draws)
    waves = np.fft.rfft(chains, 2 * length, axis=1)
    products = np.fft.irfft(np.sum(np.square(np.abs(waves)), axis=0))[:length]
    means = products / np.arange(length, 0, -1)
    observed = (means / means[0])[: length - length % 2]
    tau = 1.0
    for _ in range(_N_ROUNDS):
        correlations = observed + (1 - observed) * min(tau / n_draws, _LARGEST_SHARE)
        pairs = correlations.reshape(-1, 2).sum(axis=1)
        end = int(np.argmax(pairs <= 0)) if np.any(pairs <= 0) else len(pairs)
        tau = max(2 * float(np.sum(pairs[:end])) - 1, 1.0)
    return n_draws / min(tau, n_draws)


def _ordered_ranks(drawn: np.ndarray) -> np.ndarray:
    """The ranks of draws ``[n, S]`` in each row, those of ties in the order of the draws."""
    return np.argsort(np.argsort(drawn, axis=1, kind="stable"), axis=1, kind="stable")


def dependence(found: dict[str, Rows], n_chains: int | None) -> list[str]:
    """A sentence if the draws of a parameter are worth less than half of their number."""
    if n_chains is None:
        return []
    worth = {name: effective_draws(drawn, n_chains) for name, (_, drawn) in found.items()}
    name = min(worth, key=lambda name: worth[name])
    n_draws = found[name][1].shape[1]
    if worth[name] >= n_draws / 2:
        return []
    step = math.ceil(n_draws / worth[name])
    return [
        f"Autocorrelated draws: the {n_draws} draws of {name} have an effective sample size of "
        f"{worth[name]:.2g}, so calibrated posteriors may be rejected. "
        f"Thin them: draws[..., ::{step}] of arrays that end with the draws of one chain, and "
        f"draws.isel(draw=slice(None, None, {step})) of datasets."
    ]
