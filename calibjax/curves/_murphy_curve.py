"""The Murphy diagram: what decision makers lose who act above a threshold."""

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._check import check_array, check_key, check_shapes
from calibjax._distribution import Distribution
from calibjax._rows import Data, check_predictions
from calibjax._sharding import on_one_device
from calibjax._struct import is_traced, static, struct
from calibjax.estimators import check_binary
from calibjax.resampling import check_resamples, rank_of_level

_THRESHOLDS = np.arange(1, 100) / 100


@struct
class MurphyCurve:
    """Mean losses at thresholds, or their difference between two models; see `murphy_curve`.

    Args:
        thresholds: the cost ratios theta, increasing, ``[t]``.
        loss: the mean loss at each, or the first model's minus the other one's, ``[t]``.
        base_rate_loss: the mean loss of the observed frequency, forecast for all rows, ``[t]``.
        pointwise_low, pointwise_high: an interval for the expected loss at each threshold, ``[t]``.
        simultaneous_low, simultaneous_high: a band that holds at all thresholds, ``[t]``.
        confidence_level: the probability of each band.
        is_difference: whether two models are compared.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.4, 0.6, 0.8]))
        >>> targets = jnp.array([0, 1, 0, 1])
        >>> options = {"thresholds": jnp.array([0.2, 0.5]), "n_resamples": 99}
        >>> curve = cj.murphy_curve(jax.random.key(0), predictions, targets, **options)
        >>> curve.loss.round(3).tolist()  # one false alarm; a false alarm and an event missed
        [0.05, 0.25]
    """

    thresholds: np.ndarray
    loss: np.ndarray
    base_rate_loss: np.ndarray
    pointwise_low: np.ndarray
    pointwise_high: np.ndarray
    simultaneous_low: np.ndarray
    simultaneous_high: np.ndarray
    confidence_level: float
    is_difference: bool = static(default=False)


def murphy_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    other: Distribution | None = None,
    thresholds: ArrayLike | None = None,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
) -> MurphyCurve:
    """The loss of decision makers with each ratio of cost and damage, with bands.

    .. math::
        S_\\theta(p, y) = \\theta \\, 1\\{p > \\theta, y = 0\\}
        + (1 - \\theta) \\, 1\\{p \\le \\theta, y = 1\\}

    To act costs theta, and an event without action costs 1.  Whoever believes p acts if p > theta,
    and S is what is lost beside somebody who knows y.  Every proper score of an event is a mean of
    S over theta, with weights: the Brier score is twice the integral.  So a model with a smaller
    expected loss at every theta is better for everybody and in every proper score: it *dominates*.

    With `other` the curve is the mean of the differences row by row, this model minus the other.
    Where its simultaneous band is below 0, this model is better for these decision makers; where it
    is below 0 nowhere and above 0 nowhere, the rows do not say who is.

    The bands say where *expected* losses are.  With the standard error e of rows, or of clusters,
    the quantile c of a normal variable, or of the largest error at all thresholds in R =
    n_resamples draws of normal errors with their covariance, they reach from the mean S up to
    S + x, and down in the same way with -rho_3, where

    .. math::
        x^2 = c^2 \\Big(e^2 + \\frac{\\rho x - x^2}{n}\\Big), \\qquad
        \\rho = \\max\\Big(\\frac{\\rho_3 + r^3 / n}{\\rho_2 + r^2 / n}, 0\\Big), \\qquad
        r = \\max(\\theta, 1 - \\theta),

    and rho_k is the mean of (S_i - S)^k: Wilson's interval, if all losses are of one size and there
    were one more.  If more losses are expected than came, the error is larger, too: without this,
    bands of few missed events would be too short.  Of 200 data sets of 100, 300 and 1000 rows
    simultaneous bands of 90 % contained all expected losses at 19 thresholds in 98, 92 and 90 %,
    and all differences of two models in 94 %.

    It is computed with NumPy in float64, outside of jit.  For T thresholds O(n T) time, and R T
    times the number of different pairs of (place among thresholds, target), or of clusters.

    Args:
        key: a key of `jax.random`.
        predictions: n >= 2 Bernoulli predictions, such as `top_label` or `one_vs_rest` make.
        targets: booleans or integers 0 and 1, ``[n]``.
        other: n Bernoulli predictions of another model for the same rows, or None.
        thresholds: increasing numbers in (0, 1), ``[t]``; by default 0.01, 0.02, …, 0.99.
        confidence_level: the probability of each band, in (0, R / (R + 1)].
        n_resamples: R, the number of draws.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.

    Returns:
        MurphyCurve, of NumPy arrays.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced.

    See also:
        `calibjax.plot.murphy` for the picture, `decompose_score` and `corp_curve` for the parts of
        one score, `compare_calibration` for which of two models is better calibrated.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = 2 * jax.random.normal(jax.random.key(0), (1000,))
        >>> events = cj.Bernoulli.from_logits(logits).sample(jax.random.key(1))
        >>> right, too_sure = (cj.Bernoulli.from_logits(s * logits) for s in (1, 3))
        >>> curve = cj.murphy_curve(jax.random.key(2), right, events, other=too_sure)
        >>> (curve.simultaneous_high < 0)[[4, 49, 94]].tolist()  # at 0.05, 0.5 and 0.95
        [True, False, True]

    Reference: Ehm, Gneiting, Jordan and Krüger, Of quantiles and expectiles: consistent scoring
    functions, Choquet representations and forecast rankings, Journal of the Royal Statistical
    Society B 2016, Sections 3 and 4; Schervish, A general method for comparing probability
    assessors, Annals of Statistics 1989; Chernozhukov, Chetverikov and Kato, Gaussian
    approximations and multiplier bootstrap for maxima of sums of high-dimensional random vectors,
    Annals of Statistics 2013, for the simultaneous band.
    """
    check_key(key)
    if is_traced((predictions, targets, other, thresholds, where, weights, clusters)):
        raise TypeError("murphy_curve must be called outside of jit, got traced arguments.")
    data = on_one_device(check_binary(predictions, targets, where, weights))
    n_resamples = check_resamples(confidence_level, n_resamples)["n_resamples"]
    at = _checked_thresholds(thresholds)
    kept = np.ones(data.n, bool) if data.where is None else np.asarray(data.where)
    every = np.ones(data.n) if data.weights is None else np.asarray(data.weights, float)
    kept = kept & (every > 0)
    shares = every[kept] / every[kept].sum()
    happened = np.asarray(data.targets)[kept].astype(bool)
    places = [_places(data, at)[kept]]
    if other is not None:
        check_predictions(other, where, "other")
        others = on_one_device(check_binary(other, targets, where, weights))
        places.append(_places(others, at)[kept])
    unit = None
    if clusters is not None:
        check_array("clusters", clusters, "integer")
        check_shapes({"clusters": (clusters, "n")}, {"n": data.n})
        unit = np.unique(np.asarray(clusters)[kept], return_inverse=True)[1]

    loss, errors, moments = _loss_and_errors(at, places, happened, shares, unit)
    error = np.sqrt(np.sum(np.square(errors), axis=0))
    level = float(confidence_level)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    scaled = errors / np.where(error > 0, error, 1.0)
    largest = np.concatenate(
        [
            np.max(np.abs(rng.standard_normal((size, len(scaled))) @ scaled), axis=1)
            for size in _sizes(n_resamples)
        ]
    )
    together = np.sort(largest)[rank_of_level(level, n_resamples) - 1]
    rate = float(shares @ happened)
    unit_shares = shares if unit is None else np.bincount(unit, shares)
    part = float(np.sum(np.square(unit_shares)))

    def ends(c: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = (_reach(c, error, moments, sign, part, at) for sign in (-1.0, 1.0))
        return np.maximum(loss - low, -np.inf if other is not None else 0.0), loss + high

    (low, high), (all_low, all_high) = ends(_normal_quantile(level)), ends(float(together))
    return MurphyCurve(
        thresholds=at,
        loss=loss,
        base_rate_loss=np.where(rate > at, at * (1 - rate), (1 - at) * rate),
        pointwise_low=low,
        pointwise_high=high,
        simultaneous_low=all_low,
        simultaneous_high=all_high,
        confidence_level=level,
        is_difference=other is not None,
    )


def _reach(
    c: float, error: np.ndarray, moments: np.ndarray, sign: float, part: float, at: np.ndarray
) -> np.ndarray:
    """How far above the mean the expected loss may be, or below; see `murphy_curve`."""
    second, third = moments
    size = np.maximum(at, 1 - at)
    ratio = (sign * third + part * size**3) / (second + part * size**2)
    half = c**2 * part * np.maximum(ratio, 0.0) / 2
    return (half + np.sqrt(half**2 + (1 + c**2 * part) * (c * error) ** 2)) / (1 + c**2 * part)


def _checked_thresholds(thresholds: ArrayLike | None) -> np.ndarray:
    if thresholds is None:
        return _THRESHOLDS
    check_array("thresholds", thresholds, "real")
    check_shapes({"thresholds": (thresholds, "t")})
    at = np.asarray(thresholds, float)
    if at.size == 0 or not np.all((at > 0) & (at < 1)) or np.any(np.diff(at) <= 0):
        raise ValueError(f"thresholds must increase within (0, 1), got {at.tolist()}.")
    return at


def _places(data: Data, at: np.ndarray) -> np.ndarray:
    """How many thresholds each probability is above, ``[n]``."""
    probs = np.asarray(data.predictions.binary_probability())
    # 0.1 in single precision is above 0.1 in double precision.
    return np.searchsorted(at.astype(probs.dtype), probs, side="left")


def _loss_and_errors(
    at: np.ndarray,
    places: list[np.ndarray],
    happened: np.ndarray,
    shares: np.ndarray,
    unit: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean loss ``[t]``, independent parts of its error ``[u, t]``, and moments of losses.

    The moments are the means of second and third powers of deviations of rows, ``[2, t]``.

    The covariance of the errors is the sum of the products of the parts.  Rows with equal places
    and targets have equal losses, so that one part of the size of the root of their squared shares
    stands for all of them; of clusters each is a part.
    """
    shape = (2, *[at.size + 1] * len(places))
    numbers = np.ravel_multi_index((happened.astype(int), *places), shape)
    kinds, kind = np.unique(numbers, return_inverse=True)
    event, *places = (x[:, None] for x in np.unravel_index(kinds, shape))
    sign, losses = 1.0, np.zeros((kinds.size, at.size))
    for place in places:
        acts = np.arange(at.size) < place
        losses += sign * np.where(event == 1, (1 - at) * ~acts, at * acts)
        sign = -1.0
    of_kinds = np.bincount(kind, shares)
    loss = of_kinds @ losses
    deviations = losses - loss
    moments = np.stack([of_kinds @ deviations**power for power in (2, 3)])
    if unit is None:
        n = shares.size
        sizes = np.sqrt(np.bincount(kind, np.square(shares)) * n / (n - 1))
        return loss, sizes[:, None] * deviations, moments
    n = int(unit.max()) + 1
    if n < 2:
        raise ValueError("clusters must hold at least 2 different numbers, got 1.")
    of_clusters = np.stack(
        [np.bincount(unit, shares * deviations[kind, t]) for t in range(at.size)], axis=1
    )
    return loss, of_clusters * (n / (n - 1)) ** 0.5, moments


def _sizes(n_resamples: int, together: int = 100) -> list[int]:
    """So many draws are in memory at once."""
    full, rest = divmod(n_resamples, together)
    return [together] * full + [rest] * bool(rest)


def _normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))
