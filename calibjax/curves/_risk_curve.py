"""Predicted and observed risks of censored lifetimes."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax._struct import struct
from calibjax.curves._rows import on_all_rows
from calibjax.estimators import (
    ProductLimit,
    UniformBinning,
    check_lifetimes,
    clean_lifetimes,
    numbers_below,
    predicted_risks,
    product_limit,
)
from calibjax.resampling import Level, normal_quantile, one_level


@struct
class RiskCurve:
    """How many rows had an event until some times, and how many should have; see `risk_curve`.

    Args:
        at: the times, ``[t]``.
        predicted: the mean predicted risk of each group, ``[t, b]``, NaN where it is empty.
        observed: the observed risk, ``[t, b]``; NaN where it is empty or not known.
        low, high: a confidence interval of each observed risk alone, ``[t, b]``.
        count: the number of rows in each group, ``[t, b]``.
        confidence_level: the level of the intervals.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(4), jnp.array([0.5, 0.5, 2.0, 2.0]))
        >>> time, observed = jnp.array([0.2, 0.9, 0.7, 3.0]), jnp.array([True, True, False, True])
        >>> targets = cj.Between.right_censored(time, observed)
        >>> curve = cj.risk_curve(predictions, targets, jnp.array([0.5]), n_bins=2)
        >>> curve.predicted.round(2).tolist(), curve.observed.tolist()
        ([[0.22, 0.63]], [[0.0, 0.5]])
    """

    at: jax.Array
    predicted: jax.Array
    observed: jax.Array
    low: jax.Array
    high: jax.Array
    count: jax.Array
    confidence_level: Level


def risk_curve(
    predictions: Distribution,
    targets: Targets,
    at: ArrayLike,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    where: ArrayLike | None = None,
) -> RiskCurve:
    """The observed risk of an event until time t, against the predicted one, in groups of rows.

    .. math::
        \\bar F_b = \\frac{1}{n_b} \\sum_{i \\in b} F_i(t), \\qquad
        \\hat R_b = 1 - \\prod_{s \\le t} \\Big(1 - \\frac{d_{bs}}{r_{bs}}\\Big)

    The rows are ordered by their predicted risk F_i(t) = P(Y_i <= t), which is linear between the
    times of a `SurvivalCurve` and constant after the last one, and cut into B = n_bins groups
    of equal size; rows with equal risks are in one group.  The observed risk is the estimate of
    Kaplan and Meier, from d_bs events at time s among the r_bs rows of the group that are then at
    risk, so that rows that are censored before t count as long as they are seen.  It is right if
    the censoring is independent of the lifetimes within a group.

    The interval is that of Greenwood's variance on the scale of log(-log S).  Without any event it
    ends at 1 - (a / 2)^(1 / m), a = 1 - confidence_level, for m rows that are seen until t; and
    where the last row at risk had an event, it begins where it did before this event.  It is one
    for each group alone, for large groups, and says where the true risk is, not where a calibrated
    model would be: the verdict is that of `calibration_test`, which needs neither groups nor times.

    Args:
        predictions: n >= 1 predictions of numbers, with a cdf.
        targets: `Between.right_censored`, or an array ``[n]`` if nothing is censored.
        at: times t, ``[t]``, in units of the targets.
        n_bins: the number of groups B, from 1 to 2^24.
        confidence_level: the probability of each interval, in (0, 1).
        where: boolean mask ``[n]``; masked rows may hold anything, and do not count.

    Returns:
        RiskCurve.  The observed risk is NaN where no row of a group is seen until t and not all of
        them had an event.  Inside jit all numbers but the counts are NaN if a kept row is invalid.
        O(n (B + log n)) time for each t, O(n B) memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            rows that are censored on the left or binned.

    See also:
        `integrated_calibration_index` for one number, `calibjax.plot.risk` for a picture.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(400), jnp.linspace(0.5, 2.0, 400))
        >>> time, end = predictions.sample(jax.random.key(0)), jnp.full(400, 2.0)
        >>> targets = cj.Between.right_censored(jnp.minimum(time, end), time <= end)
        >>> curve = cj.risk_curve(predictions, targets, jnp.array([1.0]), n_bins=2)
        >>> curve.predicted.round(2).tolist(), curve.observed.round(2).tolist()
        ([[0.46, 0.69]], [[0.42, 0.7]])

    Reference: Kaplan and Meier, Nonparametric estimation from incomplete observations, Journal of
    the American Statistical Association 1958; Kalbfleisch and Prentice, The statistical analysis of
    failure time data, 2002, Section 1.4, for the intervals; D'Agostino and Nam, Evaluation of the
    performance of survival analysis models, Handbook of Statistics 2003, for the groups.
    """
    data = check_lifetimes(predictions, targets, at, where)
    n_bins = UniformBinning(n_bins).n_bins
    level = one_level(confidence_level, jnp.float32)
    return risk_curve_of_data(padded(data), jnp.asarray(at), n_bins=n_bins, confidence_level=level)


@on_all_rows
def risk_curve_of_data(
    data: Data, at: jax.Array, *, n_bins: int, confidence_level: Level
) -> RiskCurve:
    """`risk_curve` of checked arguments."""
    data = clean_lifetimes(data)
    kept, dtype = data.weights != 0, data.weights.dtype
    n, level = jnp.sum(kept, dtype=jnp.int32), confidence_level.astype(dtype)
    valid = jnp.where(jnp.any(jnp.isnan(data.weights)), jnp.nan, 1.0).astype(dtype)

    def of_time(t: jax.Array) -> tuple[jax.Array, ...]:
        risks = predicted_risks(data.predictions, t)
        below, _ = numbers_below(risks, kept)
        # The first row of the group b is the row n b / B, rounded up.
        ends = -(-n * jnp.arange(1, n_bins, dtype=jnp.int32) // n_bins)
        group = jnp.sum(below[:, None] >= ends[None], axis=1, dtype=jnp.int32)
        groups = jnp.arange(n_bins, dtype=jnp.int32)
        sets = ((group[None] == groups[:, None]) & kept[None]).astype(dtype)
        count = jnp.sum(sets, axis=1)
        filled = jnp.where(count > 0, valid, jnp.nan)
        predicted = jnp.sum(sets * jnp.where(kept, risks, 0.0)[None], axis=1)
        predicted = predicted / jnp.maximum(count, 1.0)
        found = product_limit(sets, data.targets, t)
        numbers = jnp.stack([predicted, found.risk(), *_interval(found, level)])
        return numbers * filled[None], count.astype(jnp.int32)

    numbers, count = lax.map(of_time, at.astype(dtype))
    predicted, observed, low, high = jnp.moveaxis(numbers, 1, 0)
    return RiskCurve(at.astype(dtype), predicted, observed, low, high, count, level * valid)


def _interval(found: ProductLimit, level: Level) -> tuple[jax.Array, jax.Array]:
    """The ends of the interval of the risk, NaN where the risk is."""
    some = (found.before > 0) & (found.before < 1)
    log_survival = jnp.log(jnp.where(some, found.before, 0.5))
    factor = jnp.exp(normal_quantile(level) * jnp.sqrt(found.greenwood) / -log_survival)
    low = jnp.where(some, -jnp.expm1(log_survival / factor), 0.0)
    at_risk = jnp.maximum(found.at_risk, 1.0)
    without_events = -jnp.expm1(jnp.log((1 - level) / 2) / at_risk)
    high = jnp.where(some, -jnp.expm1(log_survival * factor), without_events)
    risk = found.risk()
    high = jnp.where(risk >= 1, 1.0, high)
    known = jnp.where(jnp.isnan(risk), jnp.nan, 1.0)
    return low * known, high * known
