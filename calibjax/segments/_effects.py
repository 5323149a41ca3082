r"""The sizes of errors of segments, as text in readable units, and their intervals.

Scores between -c and c are chance in all segments at once.  They belong to sums between z_- and z_+
in units of the model's deviation d.  With the sum S of a segment, its weight W and its information
I = sum w E r^2, the error and its interval are

- of a frequency with the mean prediction p: observed o = p + S / W.  The interval holds the q with
  z_- <= (o - q) / (k sqrt(q (1 - q))) <= z_+, where k sqrt(p (1 - p)) = d / W, as that of Wilson;
- of a slope, or a location: S / I, with the interval (S - z d) / I;
- of the spread: the ratio t of what is observed to what is predicted, t^2 = 1 + sqrt(2) S / I.  The
  interval holds the t with z_- d / I <= (t_observed^2 / t^2 - 1) / sqrt(2) <= z_+ d / I.

S / I is one step of Newton to the most likely slope, location or log of the spread.  Each interval
holds what is predicted if and only if the score is between -c and c.

For ensembles and quantiles, S / I of location and spread is between z d / I, and
`in_units_of_forecast` brings all of these to units of the forecast.

For this the intervals of slopes and locations take the deviation d that the model says.  Where the
spread of the segment is wrong as well, they are too narrow or too wide by this factor, and hold the
true value less or more often than they promise.

**Units of the forecast.**  The normal score z of a target is the mean over a piece of the unit
line:

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

Reference: Wilson, Probable inference, the law of succession, and statistical inference, Journal of
the American Statistical Association 1927.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from calibjax._base.text import class_name, format_distinct, percent, shares_in_words
from calibjax.measures.sampling import share_bound
from calibjax.segments._segment_sums import SegmentSums, sums_at

# Larger shifts and factors, and smaller factors, hardly change the pieces.
_MOST_SHIFT, _MOST_FACTOR, _NO_FACTOR, _GRID = 6.0, 20.0, 1e-6, 301
_X = np.linspace(-8.0, 8.0, 401)
_Y = np.linspace(-14.0, 14.0, 701)

#: Statistics that are not shares, which are shown in percent.
NOT_SHARES = "calibration slope", "location", "spread"
#: What is known of a PIT: its rank among a number of members, or the levels around it.
Partition = int | tuple[float, ...]


def in_units_of_forecast(statistic: str, steps: np.ndarray, partition: Partition) -> np.ndarray:
    """Shifts in deviations of the forecast, or ratios of deviations, from steps S / I."""
    return np.interp(steps, *_sizes(partition)[statistic])


@functools.lru_cache(maxsize=8)
def _sizes(partition: Partition) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Increasing steps that the pieces show, and sizes of the forecast that give them."""
    from scipy.special import ndtri

    if isinstance(partition, int):
        cuts, means = np.arange(1, partition + 1) / (partition + 1), means_of_ranks(partition)
    else:
        cuts, means = np.asarray(partition), _means_of_levels(ndtri(partition))
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


# Factors of logits between this one and its inverse are stated.
_LEAST_FACTOR = 0.75


class Effects(NamedTuple):
    """What was observed of some statistics, and ranges, arrays of one shape.

    Args:
        observed: in the units of `predicted`.
        predicted: what a calibrated model has on average.
        low, high: the interval of the true value.
        expected_low, expected_high: the range of `observed` if the model is calibrated.
    """

    observed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected_low: np.ndarray
    expected_high: np.ndarray


def effects_of(
    statistic: str, sums: SegmentSums, j: int, critical: float, partition: Partition | None = None
) -> Effects:
    """The effects of statistic j in all segments; `critical` is c.

    For ensembles and quantiles, which have a partition, sizes become those of the forecast.
    """
    total = np.asarray(sums.total, np.float64)
    observed_sums, variance, skewness, information, p = (
        np.asarray(x[:, j], np.float64)
        for x in (sums.sums, sums.variance, sums.skewness, sums.information, sums.predicted)
    )
    deviation = np.sqrt(variance)
    least, most = (sums_at(c, skewness) * deviation for c in (-critical, critical))
    if partition is not None and statistic in ("spread", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        steps = step, step - most, step - least, least, most
        observed, *ends = (in_units_of_forecast(statistic, x, partition) for x in steps)
        return Effects(observed, p, *ends)
    if statistic == "spread":
        square, least, most = (
            np.maximum(1 + np.sqrt(2) * s / information, 0.0) for s in (observed_sums, least, most)
        )
        low, high = (np.sqrt(square / np.where(s > 0, s, np.nan)) for s in (most, least))
        high = np.where(least > 0, high, np.inf)
        return Effects(np.sqrt(square), p, low, high, np.sqrt(least), np.sqrt(most))
    if statistic in ("calibration slope", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        observed = p + step
        return Effects(observed, p, observed - most, observed - least, p + least, p + most)
    observed = np.clip(p + observed_sums / total, 0.0, 1.0)
    of_variance = p * (1 - p)
    low, high = (
        share_bound(
            observed, np.square(s / total) / np.where(of_variance > 0, of_variance, np.nan), sign
        )
        for s, sign in ((most, -1), (least, 1))
    )
    expected = (np.clip(p + s / total, 0.0, 1.0) for s in (least, most))
    return Effects(observed, p, low, high, *expected)


def in_words(
    statistic: str,
    observed: float,
    predicted: float,
    classes: Sequence[Any] | None = None,
    is_chance: bool = False,
) -> str:
    """The error as part of a sentence; a slope by chance is only a number and its direction."""
    if statistic == "calibration slope":
        factor, one = format_distinct(observed, 1.0, 2)
        if is_chance or factor == one:
            kind = "wrong order" if observed < 0 else "too extreme"
            kind = kind if observed < 1 else "too moderate"
            return f"calibration slope {factor}" + f" ({kind})" * (factor != one)
        # Farther from 1 a step of Newton goes too far, or not far enough.
        if not _LEAST_FACTOR <= observed <= 1 / _LEAST_FACTOR:
            return "strongly over-confident" if observed < 1 else "strongly under-confident"
        words = "over-confident" if observed < 1 else "under-confident"
        return f"{words}: calibration slope about {factor}"
    if statistic == "location":
        words = "low" if observed > 0 else "high"
        return f"biased {words} by {abs(observed):.2g} predicted SDs"
    if statistic == "spread":
        if observed <= 0:
            return "over-dispersive: predicted spread much too large"
        name, words = ("under", "small") if observed > 1 else ("over", "large")
        change = abs(1 - 1 / observed)
        change_text = percent(change, 0 if change >= 0.01 else 1)
        return f"{name}-dispersive: predicted spread {change_text} too {words}"
    if statistic == "coverage":
        return f"{100 * predicted:.0f} % interval coverage {100 * observed:.0f} %"
    if statistic == "top label":
        words = "over" if observed < predicted else "under"
        shares = shares_in_words(predicted, observed, ("mean confidence", "accuracy"))
        return f"{words}-confident ({shares})"
    kind, _, number = statistic.partition(" ")
    shares = shares_in_words(predicted, observed)
    if kind not in ("rate", "class"):
        return f"{statistic} ({shares})"
    name = class_name(classes, int(number or 1)) if number or classes else "risk"
    return f"{name} {'under' if observed > predicted else 'over'}-estimated ({shares})"
