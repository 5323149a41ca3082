"""T-Cal: the tests of binary probabilities with the debiased squared error in bins.

Source: Lee, Huang, Hassani and Dobriban, T-Cal: an optimal test for the calibration of predictive
models, JMLR 2023.  The adaptive test takes 2, 4, 8, … bins, the other one a number of bins that
depends on how smooth the true probabilities are, which nobody knows but in an experiment.  Both
draw the law of the error under H0: scores with replacement, and labels from them.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# The number of rows that are drawn at a time.
_ROWS = 2**19


def dyadic_bins(n: int) -> list[int]:
    """The numbers of bins of the adaptive test, 2^1 … 2^B with B = int(2 log2(n / sqrt(log n)))."""
    return [2**b for b in range(1, int(2 * math.log2(n / math.sqrt(math.log(n)))) + 1)]


def best_bins(n: int, smoothness: float) -> int:
    """The number of bins for true probabilities of a known Hölder smoothness."""
    return int(n ** (2 / (4 * smoothness + 1)))


def rejects(
    key: jax.Array,
    scores: jax.Array,
    labels: jax.Array,
    n_bins: Sequence[int],
    n_trials: int,
    level: float,
) -> jax.Array:
    """Whether the error in any of the partitions is above its 1 - level / len(n_bins) quantile."""
    n = scores.shape[0]
    order = jnp.argsort(scores)
    scores, labels = scores[order], labels[order].astype(scores.dtype)
    partitions = partitions_of(scores, n_bins)

    def trial(key):
        row_key, label_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (n,), 0, n)
        drawn = scores[rows]
        r = (jax.random.uniform(label_key, (n,)) < drawn).astype(drawn.dtype) - drawn
        sums = jnp.zeros((n, 3), r.dtype).at[rows].add(_sums_of_one(r))
        return squared_errors(partitions, sums)

    null = lax.map(trial, jax.random.split(key, n_trials), batch_size=max(1, _ROWS // n))
    found = squared_errors(partitions, _sums_of_one(labels - scores))
    return jnp.any(found > jnp.quantile(null, 1 - level / len(n_bins), axis=0))


class Partitions(NamedTuple):
    """Bins of ordered scores, those of all partitions one after the other.

    Args:
        starts, stops: each bin holds the scores from one to before the other.
        sizes: the number of bins of each partition.
    """

    starts: jax.Array
    stops: jax.Array
    sizes: list[int]


def partitions_of(scores: jax.Array, n_bins: Sequence[int]) -> Partitions:
    """The non-empty ones of equal bins of ordered scores, and empty ones up to a fixed number."""
    ends = [_ends(scores, k) for k in n_bins]
    starts, stops = (jnp.concatenate(x) for x in zip(*((e[:-1], e[1:]) for e in ends), strict=True))
    return Partitions(starts, stops, [e.size - 1 for e in ends])


def _ends(scores: jax.Array, n_bins: int) -> jax.Array:
    """Where the non-empty ones of `n_bins` equal bins begin, then n."""
    bins = jnp.minimum(jnp.floor(scores * n_bins), n_bins - 1).astype(jnp.int32)
    number = jnp.cumsum(jnp.pad(bins[1:] != bins[:-1], (1, 0)))
    return jnp.searchsorted(number, jnp.arange(min(n_bins, scores.shape[0]) + 1))


def squared_errors(partitions: Partitions, sums: jax.Array) -> jax.Array:
    """sum_b ((sum_i r_i)^2 - sum_i r_i^2) / n_b / n over the bins b of each partition.

    `sums` ``[n, 3]`` are, for each score, the number of its rows, the sum of their residuals
    r = label - score, and the sum of the squares.
    """
    totals = jnp.cumsum(jnp.pad(sums, ((1, 0), (0, 0))), axis=0)
    count, r, square = (totals[partitions.stops] - totals[partitions.starts]).T
    # A bin of one row adds 0, and differences of long sums are only nearly 0.
    of_bins = jnp.where(count > 1, (jnp.square(r) - square) / jnp.maximum(count, 1), 0.0)
    parts = jnp.split(of_bins, list(itertools.accumulate(partitions.sizes))[:-1])
    return jnp.stack([jnp.sum(part) for part in parts]) / sums.shape[0]


def _sums_of_one(r: jax.Array) -> jax.Array:
    """The sums of one row for each residual."""
    return jnp.stack([jnp.ones_like(r), r, jnp.square(r)], axis=1)
