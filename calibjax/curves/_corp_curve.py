"""The reliability curve of binary predictions by isotonic regression, without bins.

The null distribution of a recalibrated probability has no formula: it depends on how many forecasts
are near.  At a forecast p its distance from the model is therefore

    T(p) = 2 KL(x(p) | p) / m(p),

where m(p) is the mean of 2 KL(x(p) | p) over all R + 1 data sets: R with targets redrawn from the
forecasts, and the observed one.  The R + 1 curves are exchangeable under the model and treated
alike, so that the rank of the largest distance of the observed curve among all is exact.
"""

from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_key
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import is_traced, struct
from calibjax._data.data import DEPENDENCE, Data
from calibjax._data.distribution import Distribution, as_binary
from calibjax._numbers.arithmetic import isotonic_frequencies
from calibjax.estimators.labels import binary_as_data
from calibjax.nulls.ranks import check_resamples, rank_of_level

# The largest number of forecasts at which bands are computed.
_POINTS = 200


@struct
class CORPCurve:
    """Recalibrated probabilities, and the decomposition of a score; see `corp_curve`.

    Args:
        forecasts: the different forecasts, increasing, ``[u]``.
        recalibrated: the isotonic probabilities of an event at these forecasts, ``[u]``.
        count: the number of rows with each forecast, ``[u]``.
        score: the mean score, miscalibration - discrimination + uncertainty.
        miscalibration: by how much the score is larger than the recalibrated forecasts' score.
        discrimination: by how much that is smaller than the score of the observed frequency.
        uncertainty: the score of the observed frequency, forecast for every row.
        grid: the forecasts at which there are bands, at most 200 of `forecasts`, ``[g]``.
        pointwise_low, pointwise_high: a band that holds at each forecast alone, ``[g]``.
        simultaneous_low, simultaneous_high: a band that holds at the whole grid, ``[g]``.
        confidence_level: the probability with which each band holds.

    Without a key the grid and the bands are empty.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.3, 0.6, 0.8]))
        >>> curve = cj.corp_curve(predictions, jnp.array([0, 1, 0, 1]))
        >>> curve.recalibrated.tolist()
        [0.0, 0.5, 0.5, 1.0]
    """

    forecasts: np.ndarray
    recalibrated: np.ndarray
    count: np.ndarray
    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    grid: np.ndarray
    pointwise_low: np.ndarray
    pointwise_high: np.ndarray
    simultaneous_low: np.ndarray
    simultaneous_high: np.ndarray
    confidence_level: float


def corp_curve(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    score: str = "brier",
    key: jax.Array | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> CORPCurve:
    """Reliability without bins, by isotonic regression, with the decomposition of a score.

    .. math::
        x = \\operatorname{argmin}_{x_1 \\le x_2 \\le \\dots} \\sum_i (x_i - y_i)^2, \\qquad
        \\bar S(p) = \\underbrace{\\bar S(p) - \\bar S(x)}_{\\text{miscalibration}}
        - \\underbrace{(\\bar S(\\bar y) - \\bar S(x))}_{\\text{discrimination}}
        + \\underbrace{\\bar S(\\bar y)}_{\\text{uncertainty}}

    where rows are ordered by their forecasts p_i, equal forecasts have equal x_i, and S is the mean
    score.  All three parts are nonnegative.  Miscalibration is what recalibration of *these* rows
    would gain, which is positive even for calibrated models.

    With a key it has consistency bands: where x lies **if the model is calibrated**.  R =
    n_resamples times all targets are redrawn from the forecasts and regressed again.  "The curve
    leaves the simultaneous band somewhere on the grid" is an exact test at the level
    1 - confidence_level if rows are independent given the predictions, up to steps of 1 / (R + 1).

    It is computed with NumPy and SciPy in float64, outside of jit.  O(n log n) time without bands;
    with them R times O(u) for u different forecasts.

    Args:
        predictions, targets: as in `Data`, or one `Data` without `clusters` and `times`: n >= 2
            Bernoulli predictions, such as `top_label` or `one_vs_rest` make.
        score: "brier", the mean of (p - y)^2, or "log", the mean log score in nats.
        key: a key of `jax.random`, or None for no bands.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets.
        where, weights: as in `Data`; weights count in the regression, in all means, and in those of
            redrawn targets.

    Returns:
        CORPCurve, of NumPy arrays.  The log score and its miscalibration are infinite if an
        impossible event happened.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced.

    See also:
        `reliability_curve` with bins, `calibjax.plot.reliability` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 200))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.corp_curve(predictions, targets, key=jax.random.key(1), n_resamples=99)
        >>> parts = curve.miscalibration, curve.discrimination, curve.uncertainty
        >>> [round(part, 3) for part in (curve.score, *parts)]
        [0.183, 0.013, 0.079, 0.249]

    Reference: Dimitriadis, Gneiting and Jordan, Stable reliability diagrams for probabilistic
    classifiers, PNAS 2021; their package in R is `reliabilitydiag`.
    """
    check_choice("score", score, _SCORES)
    if is_traced((predictions, targets, where, weights)):
        raise TypeError("corp_curve must be called outside of jit, got traced arguments.")
    unused = *DEPENDENCE, "outcome_weights"
    data = on_one_device(
        binary_as_data(predictions, targets, where=where, weights=weights, without=unused)
    )
    kept, of_rows = data.counted()
    probs = np.asarray(as_binary(data.predictions).binary_probability(), float)[kept]
    happened = np.asarray(data.targets, float)[kept]

    forecasts, index, count = np.unique(probs, return_inverse=True, return_counts=True)
    events, size = np.bincount(index, of_rows * happened), np.bincount(index, of_rows)
    curve = isotonic_frequencies(events, size)

    def mean_score(x: np.ndarray) -> float:
        return float(_SCORES[score](x, events, size - events) / size.sum())

    _, n_resamples = check_resamples(confidence_level, n_resamples)
    points, ends = np.zeros(0, int), (np.zeros(0),) * 4
    if key is not None:
        check_key(key)
        points = np.unique(np.linspace(0, forecasts.size - 1, _POINTS).round().astype(int))
        seed = np.asarray(jax.random.key_data(key)).ravel()
        redrawn = redrawn_curves(seed, forecasts, index, of_rows, points, n_resamples)
        rank = rank_of_level(confidence_level, n_resamples)
        ends = bands(forecasts[points], curve[points], redrawn, rank)

    of_forecasts, of_curve = mean_score(forecasts), mean_score(curve)
    uncertainty = mean_score(np.full_like(forecasts, np.average(happened, weights=of_rows)))
    return CORPCurve(
        forecasts=forecasts,
        recalibrated=curve,
        count=count,
        score=of_forecasts,
        miscalibration=of_forecasts - of_curve,
        discrimination=uncertainty - of_curve,
        uncertainty=uncertainty,
        grid=forecasts[points],
        pointwise_low=ends[0],
        pointwise_high=ends[1],
        simultaneous_low=ends[2],
        simultaneous_high=ends[3],
        confidence_level=float(confidence_level),
    )


def _brier(x: np.ndarray, happened: np.ndarray, failed: np.ndarray) -> np.floating:
    return np.sum(happened * (1 - x) ** 2 + failed * x**2)


def _log(x: np.ndarray, happened: np.ndarray, failed: np.ndarray) -> np.floating:
    # An event that did not happen adds 0, whatever its probability is.
    from scipy.special import xlogy

    return 0.0 - np.sum(xlogy(happened, x) + xlogy(failed, 1 - x))


_SCORES = {"brier": _brier, "log": _log}


# Equal curves may differ by rounding.
_ROUNDING = 1e-9


def redrawn_curves(
    seed: np.ndarray,
    forecasts: np.ndarray,
    index: np.ndarray,
    weights: np.ndarray,
    points: np.ndarray,
    n_resamples: int,
) -> np.ndarray:
    """Recalibrated probabilities of redrawn targets, at some of the forecasts, ``[R, g]``.

    `index` is that of the forecast of each row.  If all rows weigh the same, the events of
    equal forecasts are binomial, so that one number, which takes that of six rows, stands for them.
    """
    rng = np.random.default_rng(seed)
    count, size = np.bincount(index), np.bincount(index, weights)
    are_binomial = weights.min() == weights.max() and index.size > 6 * count.size
    of_rows = forecasts[index]

    def events() -> np.ndarray:
        if are_binomial:
            return weights[0] * rng.binomial(count, forecasts)
        return np.bincount(index, weights * (rng.random(index.size) < of_rows))

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
    return *_ends(forecasts, pointwise), *_ends(forecasts, largest[rank - 1] * scale)


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
