"""The reliability curve of binary predictions, in bins and by isotonic regression.

**Isotonic regression.**  The null distribution of a recalibrated probability has no formula: it
depends on how many forecasts are near.  At a forecast p its distance from the model is therefore

    T(p) = 2 KL(x(p) | p) / m(p),

where m(p) is the mean of 2 KL(x(p) | p) over all R + 1 data sets: R with targets redrawn from the
forecasts, and the observed one.  The R + 1 curves are exchangeable under the model and treated
alike, so that the rank of the largest distance of the observed curve among all is exact.
"""

from collections.abc import Callable
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_key
from calibjax._base.sharding import on_all_rows, on_one_device
from calibjax._base.struct import is_traced, struct
from calibjax._data.data import DEPENDENCE, Data, RowOptions, clean
from calibjax._data.distribution import Distribution, as_binary
from calibjax._numbers.arithmetic import isotonic_frequencies
from calibjax.curves._residual_sums import Resamples, resamples_of, sums_in_bins
from calibjax.estimators.binning import STRATEGIES, UniformBinning, bin_means, intervals_of
from calibjax.estimators.labels import binary_as_data
from calibjax.nulls.bands import Bins, fractions
from calibjax.nulls.event_sums import redrawn_label_counts
from calibjax.nulls.ranks import check_resamples, critical_value, rank_of_level


@struct
class ReliabilityCurve:
    """How often events happened against how often they were predicted; see `reliability_curve`.

    Args:
        edges: the ends of the bins, ``[b + 1]``.
        forecast: the mean predicted probability in each bin, ``[b]``, NaN where it is empty.
        frequency: how often the event happened, ``[b]``, NaN where the bin is empty.
        count: the number of rows in each bin, ``[b]``, whatever they weigh.
        pointwise_low, pointwise_high: a band that holds for each bin alone, ``[b]``.
        simultaneous_low, simultaneous_high: a band that holds for all bins at once, ``[b]``.
        confidence_level: the probability with which each band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.2, 0.7, 0.7]))
        >>> targets = jnp.array([0, 1, 1, 1])
        >>> curve = cj.reliability_curve(jax.random.key(0), predictions, targets, n_bins=2)
        >>> curve.forecast.round(2).tolist(), curve.frequency.tolist(), curve.count.tolist()
        ([0.15, 0.7], [0.5, 1.0], [2, 2])
    """

    edges: jax.Array
    forecast: jax.Array
    frequency: jax.Array
    count: jax.Array
    pointwise_low: jax.Array
    pointwise_high: jax.Array
    simultaneous_low: jax.Array
    simultaneous_high: jax.Array
    confidence_level: jax.Array


def reliability_curve(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> ReliabilityCurve:
    """The frequency of events in bins of the predicted probability, with consistency bands.

    .. math::
        \\bar p_b = \\frac{1}{n_b} \\sum_{i \\in b} p_i, \\qquad
        \\bar y_b = \\frac{1}{n_b} \\sum_{i \\in b} y_i

    in n_bins intervals of [0, 1], which are closed on the right: equal ones, or with the strategy
    "quantile" intervals that hold equally many predictions, as rare events want.  The bands say
    where frequencies lie **if the model is calibrated**: all targets are redrawn from the
    predictions R = n_resamples times, and the distance of each bin,

    .. math::
        T_b = 2 n_b \\, \\mathrm{KL}(\\bar y_b \\| \\bar p_b) \\,
        \\frac{n_b \\bar p_b (1 - \\bar p_b)}{\\sum_{i \\in b} p_i (1 - p_i)},

    is compared with the distances of the redrawn targets: of the same bin for the pointwise band,
    and the largest of all bins for the simultaneous one.  So "the curve leaves the simultaneous
    band somewhere" is an exact test of calibration at the level 1 - confidence_level, whatever n
    and the predictions are, if rows are independent given the predictions: the probability under a
    calibrated model is at most that, and equal up to ties and steps of 1 / (R + 1).  Some pointwise
    bands are left by most calibrated models.

    The ends of the bands are frequencies k / n_b that can happen, or the mean prediction.  Only a
    frequency strictly outside leaves the band.  A bin without rows is NaN, and a bin of impossible
    or certain events has a band of no width, which one wrong target leaves.  Bands do not depend on
    the targets.

    **With weights, or rows that depend on each other**, means are weighted, and the distance is
    |sum_i w_i (y_i - p_i)| of a bin in units of its deviation under the model.  It is compared with
    that of redrawn targets with the same weights, which is exact; or, with `clusters` or `times`,
    of the observed residuals with random signs and sizes that the rows of a cluster share, as in
    `calibration_test`.

    Args:
        key: a key of `jax.random`.
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Bernoulli predictions, such as
            `top_label` or `one_vs_rest` make.
        n_bins: the number of bins b, from 1 to 2^24.
        strategy: "uniform" or "quantile", as in ``sklearn.calibration.calibration_curve``.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        ReliabilityCurve(edges, forecast, frequency, count, bands).  Inside jit all numbers but the
        counts are NaN if a kept row is invalid.  O(n R) time; memory is bounded but for O(n + b R).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `corp_curve` without bins, `ece` for one number, `calibjax.plot.reliability` for a picture.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> confidences = cj.Bernoulli(jnp.full(400, 0.9))
        >>> hits = jnp.arange(400) < 300
        >>> curve = cj.reliability_curve(jax.random.key(0), confidences, hits, n_bins=5)
        >>> curve.frequency[4].tolist(), curve.simultaneous_low[4].round(2).tolist()
        (0.75, 0.87)

        Twenty questions on each of 20 texts, of which 15 are easy:

        >>> text = jnp.arange(400) // 20
        >>> options = {"n_bins": 5, "clusters": text}
        >>> curve = cj.reliability_curve(jax.random.key(0), confidences, text < 15, **options)
        >>> curve.frequency[4].tolist(), bool(curve.simultaneous_low[4] < 0.75)
        (0.75, True)

    Reference: Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and
    Forecasting 2007, for consistency bands; Dwass, Modified randomization tests for nonparametric
    hypotheses, Annals of Mathematical Statistics 1957, for ranks among redrawn data.
    """
    check_key(key)
    data = binary_as_data(predictions, targets, **rows)
    n_bins = UniformBinning(n_bins).n_bins
    check_choice("strategy", strategy, STRATEGIES)
    of_band = resamples_of(data, confidence_level, n_resamples)
    return _reliability_curve(key, *of_band, strategy=strategy, n_bins=n_bins)


@on_all_rows
def _reliability_curve(
    key: jax.Array, data: Data, resamples: Resamples, *, strategy: str, n_bins: int
) -> ReliabilityCurve:
    rows, level = clean(data), resamples.level
    probs, weights = as_binary(rows.predictions).binary_probability(), rows.weights
    dtype = weights.dtype
    bins, edges = intervals_of(strategy, n_bins, probs, weights != 0)

    def counts(x: jax.Array) -> jax.Array:
        return jnp.zeros(n_bins, jnp.int32).at[bins].add(x.astype(jnp.int32), mode="drop")

    count = counts(jnp.ones(rows.n))
    if resamples.sampler is None:
        moments = jnp.stack([probs, 1 - probs, probs * (1 - probs)], axis=1)
        mean, complement, variance = bin_means(moments, bins, count).T
        events = Bins(mean, complement, variance * count.astype(dtype), count)
        frequency = fractions(counts(rows.targets), count, dtype)
        # A row that draws the other label counts in no cell.
        cells = jnp.stack([jnp.full_like(bins, n_bins), bins], axis=1)
        redrawn = redrawn_label_counts(
            key, rows.predictions, weights, cells, n_bins, resamples.number
        )
        distances = jax.vmap(events.distances)(redrawn)
        alone = events.band(critical_value(distances.T, level))
        together = events.band(events.critical(redrawn, level))
    else:

        def residuals(predictions: Distribution, targets: jax.Array) -> jax.Array:
            probs = as_binary(predictions).binary_probability()
            return targets.astype(probs.dtype) - probs[:, None]

        rows = rows.replace(targets=rows.targets.astype(jnp.int32))
        variance = probs * (1 - probs)
        sums = sums_in_bins(key, rows, bins, n_bins, resamples, residuals, variance)
        values = jnp.stack([probs, rows.targets.astype(dtype)], axis=1)
        mean, frequency = bin_means(values, bins, sums.total, weights).T
        unit = 1 / jnp.where(sums.total > 0, sums.total, 1.0)
        alone, together = (
            (jnp.maximum(mean - unit * x, 0.0), jnp.minimum(mean + unit * x, 1.0))
            for x in (sums.alone(level), sums.together(level))
        )
    valid = jnp.where(jnp.any(jnp.isnan(weights)), jnp.nan, 1.0)
    of_filled = jnp.where(count > 0, valid, jnp.nan).astype(dtype)
    return ReliabilityCurve(
        edges=edges.astype(dtype),
        forecast=mean * of_filled,
        frequency=frequency * of_filled,
        count=count,
        pointwise_low=alone[0] * of_filled,
        pointwise_high=alone[1] * of_filled,
        simultaneous_low=together[0] * of_filled,
        simultaneous_high=together[1] * of_filled,
        confidence_level=level.astype(dtype) * valid,
    )


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
    """Reliability without bins: isotonic regression, and what it says about a score.

    .. math::
        x = \\operatorname{argmin}_{x_1 \\le x_2 \\le \\dots} \\sum_i (x_i - y_i)^2, \\qquad
        \\bar S(p) = \\underbrace{\\bar S(p) - \\bar S(x)}_{\\text{miscalibration}}
        - \\underbrace{(\\bar S(\\bar y) - \\bar S(x))}_{\\text{discrimination}}
        + \\underbrace{\\bar S(\\bar y)}_{\\text{uncertainty}}

    where rows are ordered by their forecasts p_i, equal forecasts have equal x_i, and S is the mean
    score.  All three parts are nonnegative.  Miscalibration is what recalibration of *these* rows
    would gain, hence positive for calibrated models too.

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
        `reliability_curve` with bins, `calibjax.plot.reliability` for a picture.

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
    equal forecasts are binomial, so that one number stands for all of them.
    """
    rng = np.random.default_rng(seed)
    count, size = np.bincount(index), np.bincount(index, weights)
    are_equal = weights.min() == weights.max()

    def events() -> np.ndarray:
        if are_equal:
            return weights[0] * rng.binomial(count, forecasts)
        happened = rng.random(index.size) < forecasts[index]
        return np.bincount(index, weights * happened)

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
