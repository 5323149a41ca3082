"""Mixtures of candidates, by what they predicted of rows that did not fit them."""

import numpy as np

# A candidate with a smaller share is left out.
_SMALL_SHARE = 0.02


def in_words(names: tuple[str, ...], shares: np.ndarray) -> tuple[dict[str, float], str]:
    """The candidates without those of small shares, the largest first, and in words."""
    shares = np.where(shares < _SMALL_SHARE, 0.0, shares)
    shares /= shares.sum()
    chosen = {}
    for k in np.argsort(-shares, kind="stable"):
        if shares[k] > 0:
            chosen[names[k]] = float(shares[k])
    return chosen, " + ".join([f"{share:.2f} {name}" for name, share in chosen.items()])


def mixture_weights(probabilities: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The shares s >= 0 of sum 1 that maximise the mean of log(P s), by EM; P is ``[n, k]``."""
    share = weights / weights.sum()
    # A common factor of a row changes nothing, and the largest probability must not underflow.
    ratios = probabilities / probabilities.max(axis=1, keepdims=True)
    shares = np.full(ratios.shape[1], 1 / ratios.shape[1])
    for _ in range(2000):
        new = shares * (share @ (ratios / (ratios @ shares)[:, None]))
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
