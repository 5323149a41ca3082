"""PITMonitor, written anew: an e-process against the exchangeability of PIT values.

The rank of each PIT value among all so far, ties broken at random, is uniform if the PIT values are
exchangeable.  A histogram of past ranks with one count more in each of the 100 bins is the density
that is bet on, and M_t = e_t (M_{t-1} + 1 / (t (t + 1))).  A model that is wrong all the time has
exchangeable PIT values: it is a change that is looked for.

Source: Farran, PITMonitor, arXiv:2603.13156, 2026.
"""

import numpy as np

N_BINS = 100


def ranks(rng: np.random.Generator, pit: np.ndarray) -> np.ndarray:
    """The randomised ranks in (0, 1) of one stream of PIT values."""
    smaller = np.tril(pit[None, :] < pit[:, None]).sum(axis=1)
    equal = np.tril(pit[None, :] == pit[:, None]).sum(axis=1)
    return (smaller + rng.random(pit.size) * equal) / np.arange(1, pit.size + 1)


def evidence(rng: np.random.Generator, pit: np.ndarray) -> np.ndarray:
    """M_t of each stream, for PIT values ``[streams, t]``."""
    n_streams, n = pit.shape
    bins = np.stack([ranks(rng, row) for row in pit]) * N_BINS
    bins = np.minimum(bins.astype(int), N_BINS - 1)
    counts = np.ones((n_streams, N_BINS))
    streams = np.arange(n_streams)
    path, m = np.empty(pit.shape), np.zeros(n_streams)
    for i in range(n):
        e = counts[streams, bins[:, i]] * N_BINS / (N_BINS + i)
        m = path[:, i] = e * (m + 1 / ((i + 1) * (i + 2)))
        counts[streams, bins[:, i]] += 1
    return path
