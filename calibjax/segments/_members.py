r"""Sizes in units of the law of the members of an ensemble, from those of ranks.

The target is one of S + 1 values of which any may be the target, and its normal score z is the mean
over a piece of the unit line with the length 1 / (S + 1).  No score is larger than that of the last
piece, so that targets d deviations too high have a mean score below d, and of a spread that is t
times too small less is seen than t.  With a normal law of members and targets, d and t, each alone,
are known from the mean scores that they give,

    m(d) = E sum_k C(S, k) F(Y)^k (1 - F(Y))^{S-k} m_k,    Y = d + t X,

where m_k is the mean score of the piece k, X and the members are standard normal, and F is their
cdf.
"""

import functools

import numpy as np

# Of larger shifts and factors, and of smaller factors, ranks say hardly more.
_MOST_SHIFT, _MOST_FACTOR, _GRID = 6.0, 20.0, 301
_X = np.linspace(-8.0, 8.0, 401)
_Y = np.linspace(-14.0, 14.0, 701)


def in_units_of_members(statistic: str, sizes: np.ndarray, n_members: int) -> np.ndarray:
    """Shifts in deviations of the members, or ratios of deviations, from those of ranks.

    Sizes of other statistics, and infinite ones, are what they were.
    """
    if statistic not in ("location", "spread"):
        return sizes
    found = np.interp(sizes, *_sizes(n_members)[statistic])
    return np.where(np.isfinite(sizes), found, sizes)


@functools.lru_cache(maxsize=8)
def _sizes(n_members: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Increasing sizes of ranks for S members, and those of members that give them."""
    from scipy.special import gammaln, log_ndtr, ndtri

    k, ends = np.arange(n_members + 1), ndtri(np.arange(n_members + 2) / (n_members + 1))
    density = np.exp(-np.square(ends) / 2) / np.sqrt(2 * np.pi)
    product = np.where(density > 0, ends, 0.0) * density
    # The means of z and of (z^2 - 1) / sqrt(2) over each piece.
    scores = (n_members + 1) * np.stack(
        [density[:-1] - density[1:], (product[:-1] - product[1:]) / np.sqrt(2)]
    )
    counts = gammaln(n_members + 1) - gammaln(k + 1) - gammaln(n_members - k + 1)
    below, above = log_ndtr(_Y)[:, None], log_ndtr(-_Y)[:, None]
    chances = np.exp(counts + k * below + (n_members - k) * above)
    of_y = (chances @ scores.T / np.mean(np.square(scores), axis=1)).T
    weights = np.exp(-np.square(_X) / 2)
    weights /= weights.sum()
    shifts = np.linspace(-_MOST_SHIFT, _MOST_SHIFT, _GRID)
    factors = np.geomspace(1 / _MOST_FACTOR, _MOST_FACTOR, _GRID)
    locations = np.interp(shifts[:, None] + _X, _Y, of_y[0]) @ weights
    squares = 1 + np.sqrt(2) * (np.interp(factors[:, None] * _X, _Y, of_y[1]) @ weights)
    seen = squares > 0
    spreads = np.append(0.0, np.sqrt(squares[seen])), np.append(0.0, factors[seen])
    return {"location": (locations, shifts), "spread": spreads}
