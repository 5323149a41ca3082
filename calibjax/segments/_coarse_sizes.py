r"""Sizes in units of the forecast distribution, from those of a PIT that is only known in pieces.

The normal score z of a target is the mean over a piece of the unit line:

- of an ensemble, the target is one of S + 1 values of which any may be the target, and the pieces
  are those between k / (S + 1);
- of quantiles, the pieces are those between the levels.

No score is larger than that of the last piece, so that targets d deviations too high have a mean
score below d, and of a spread that is t times too small less is seen than t.  With a normal
distribution of forecasts and targets, d and t, each alone, are known from the mean scores that they
give,

    m(d) = E sum_k P(k | d + t X) m_k,

where m_k is the mean score of the piece k, X is standard normal, and P(k | y) is the probability
that a target y falls into the piece: among S standard normal members, with their cdf F, it is
C(S, k) F(y)^k (1 - F(y))^{S-k}; between quantiles it is 0 or 1.
"""

import functools
from collections.abc import Callable

import numpy as np

# Of larger shifts and factors, and of smaller factors, pieces say hardly more.
_MOST_SHIFT, _MOST_FACTOR, _NO_FACTOR, _GRID = 6.0, 20.0, 1e-6, 301
_X = np.linspace(-8.0, 8.0, 401)
_Y = np.linspace(-14.0, 14.0, 701)

#: What is known of a PIT: a rank among so many members, or between which levels it is.
Pieces = int | tuple[float, ...]


def in_units_of_forecast(statistic: str, steps: np.ndarray, pieces: Pieces) -> np.ndarray:
    """Shifts in deviations of the forecast, or ratios of deviations, from steps S / I."""
    return np.interp(steps, *_sizes(pieces)[statistic])


@functools.lru_cache(maxsize=8)
def _sizes(pieces: Pieces) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Increasing steps that the pieces show, and sizes of the forecast that give them."""
    from scipy.special import ndtri

    if isinstance(pieces, int):
        cuts, means = np.arange(1, pieces + 1) / (pieces + 1), means_of_ranks(pieces)
    else:
        cuts, means = np.asarray(pieces), _means_of_levels(ndtri(pieces))
    ends = ndtri(np.concatenate([[0.0], cuts, [1.0]]))
    widths = np.diff(cuts, prepend=0.0, append=1.0)
    density = np.exp(-np.square(ends) / 2) / np.sqrt(2 * np.pi)
    product = np.where(density > 0, ends, 0.0) * density
    # The means of z and of (z^2 - 1) / sqrt(2) over each piece.
    scores = -np.stack([np.diff(density), np.diff(product) / np.sqrt(2)]) / widths
    of_location, of_spread = scores / (np.square(scores) @ widths)[:, None]
    shifts = np.linspace(-_MOST_SHIFT, _MOST_SHIFT, _GRID)
    factors = np.append(_NO_FACTOR, np.geomspace(1 / _MOST_FACTOR, _MOST_FACTOR, _GRID))
    locations = means(of_location, shifts, np.ones_like(shifts))
    spreads = means(of_spread, np.zeros_like(factors), factors)
    factors[0] = 0.0
    return {"location": (locations, shifts), "spread": (spreads, factors)}


#: Means of scores of the pieces ``[K + 1]`` by shifts and factors ``[G]``, ``[G]``.
Means = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def means_of_ranks(n_members: int) -> Means:
    """E s_k of the rank k of d + t X among S standard normal members."""
    from scipy.special import gammaln, log_ndtr

    k = np.arange(n_members + 1)
    counts = gammaln(n_members + 1) - gammaln(k + 1) - gammaln(n_members - k + 1)
    below, above = log_ndtr(_Y)[:, None], log_ndtr(-_Y)[:, None]
    of_y = np.exp(counts + k * below + (n_members - k) * above)
    weights = np.exp(-np.square(_X) / 2)
    weights /= weights.sum()

    def means(scores: np.ndarray, shifts: np.ndarray, factors: np.ndarray) -> np.ndarray:
        y = shifts[:, None] + factors[:, None] * _X
        return np.interp(y, _Y, of_y @ scores) @ weights

    return means


def _means_of_levels(quantiles: np.ndarray) -> Means:
    """The same of the cell between K quantiles of a standard normal distribution."""
    from scipy.special import ndtr

    def means(scores: np.ndarray, shifts: np.ndarray, factors: np.ndarray) -> np.ndarray:
        below = ndtr((quantiles - shifts[:, None]) / factors[:, None])
        return np.diff(below, prepend=0.0, append=1.0) @ scores

    return means
