"""How many independent draws those of Markov chains are worth."""

import math

import numpy as np

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
