"""Consistency bands of isotonic recalibration.

The law of a recalibrated probability under the model has no formula: it depends on how many
forecasts are near.  At a forecast p its distance from the model is therefore

    T(p) = 2 KL(x(p) | p) / m(p),

where m(p) is the mean of 2 KL(x(p) | p) over all R + 1 data sets: R with targets redrawn from the
forecasts, and the observed one.  The R + 1 curves are exchangeable under the model and treated
alike, so that the rank of the largest distance of the observed curve among all is exact.
"""

from collections.abc import Callable

import numpy as np

from calibjax._numbers import isotonic_frequencies

# Equal curves may differ by rounding.
_ROUNDING = 1e-9


def redrawn_curves(
    seed: np.ndarray,
    forecasts: np.ndarray,
    place: np.ndarray,
    weights: np.ndarray,
    points: np.ndarray,
    n_resamples: int,
) -> np.ndarray:
    """Recalibrated probabilities of redrawn targets, at some of the forecasts, ``[R, g]``.

    `place` is the number of the forecast of each row.  If all rows weigh the same, the events of
    equal forecasts have a binomial law, so that one number stands for all of them.
    """
    rng = np.random.default_rng(seed)
    count, size = np.bincount(place), np.bincount(place, weights)
    are_equal = weights.min() == weights.max()

    def events() -> np.ndarray:
        if are_equal:
            return weights[0] * rng.binomial(count, forecasts)
        happened = rng.random(place.size) < forecasts[place]
        return np.bincount(place, weights * happened)

    return np.stack([isotonic_frequencies(events(), size)[points] for _ in range(n_resamples)])


def bands(
    forecasts: np.ndarray, observed: np.ndarray, redrawn: np.ndarray, rank: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ends of the pointwise and of the simultaneous band: low, high, low, high, ``[g]`` each.

    Args:
        forecasts: the forecasts at which the curves are compared, ``[g]``.
        observed: the observed curve there, ``[g]``.
        redrawn: the curves of the redrawn targets, ``[R, g]``.
        rank: how many of the R redrawn data sets must be within the band, at least.
    """
    deviances = _deviance(redrawn, forecasts)
    # Deviances are infinite only at forecasts of 0 and 1, where those of redrawn targets are 0.
    of_all = np.vstack([deviances, _deviance(observed, forecasts)])
    means = np.mean(np.where(np.isfinite(of_all), of_all, 0.0), axis=0)
    scale = np.where(means > 0, means, 1.0)
    largest = np.sort(np.max(deviances / scale, axis=1))
    pointwise = np.sort(deviances, axis=0)[rank - 1]
    simultaneous = largest[rank - 1] * scale
    return *_ends(forecasts, pointwise), *_ends(forecasts, simultaneous)


def _deviance(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """2 KL(x | p) of two probabilities of an event; rounding can make it negative."""
    from scipy.special import rel_entr

    return np.maximum(2 * (rel_entr(x, p) + rel_entr(1 - x, 1 - p)), 0.0)


def _ends(p: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest x whose deviance from p is at most `most`."""
    most = most * (1 + _ROUNDING)

    def inside(x: np.ndarray) -> np.ndarray:
        return _deviance(x, p) <= most

    return _last(inside, p, np.zeros_like(p)), _last(inside, p, np.ones_like(p))


def _last(
    inside: Callable[[np.ndarray], np.ndarray], start: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """The last number on the way from `start`, which is inside, to `end` that is inside."""
    outside = end
    found = np.where(inside(end), end, start)
    for _ in range(60):
        middle = (found + outside) / 2
        good = inside(middle)
        found, outside = np.where(good, middle, found), np.where(good, outside, middle)
    return found
