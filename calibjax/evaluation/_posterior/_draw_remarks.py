"""What looks wrong about the draws of posteriors, in sentences."""

import itertools
import math
from collections.abc import Mapping

import numpy as np

from calibjax.evaluation._posterior._ranks import has_few_values
from calibjax.evaluation._posterior._read_simulations import any_of, counted

# Right posteriors that share a larger part of their draws are rejected too often.
_MOST_SHARED = 0.1


def stuck(found: Mapping[str, tuple[np.ndarray, np.ndarray]], names: np.ndarray) -> list[str]:
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


def swapped(found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
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


def shared(found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """A sentence if posteriors of different simulations have the same draws.

    Neighbours are compared by their medians of the first parameter that is no integer or category,
    of which no two true values are equal.
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
            f"Similar simulations share draws, {share:.0%} of them, as from one bank of "
            "simulations: what is wrong by chance with one posterior is wrong with all around it, "
            "so that right posteriors are rejected, too. Give each simulation a bank of its own."
        ]
    return []


_N_ROUNDS = 10
# A larger share of the draws says too little to be added.
_LARGEST_SHARE = 0.2


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


def dependence(found: dict[str, tuple[np.ndarray, np.ndarray]], n_chains: int | None) -> list[str]:
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
        f"Draws depend on each other: the {n_draws} draws of {name} are worth some "
        f"{worth[name]:.2g} independent ones, so that ranks among them reject right posteriors, "
        f"too. Thin them: draws[..., ::{step}] of arrays that end with the draws of one chain, and "
        f"draws.isel(draw=slice(None, None, {step})) of datasets."
    ]
