"""Predicted and observed risks of censored lifetimes."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.compile import quick_jit
from calibjax._base.sharding import gathered, on_all_rows
from calibjax._base.struct import struct
from calibjax._data import NOT_PLAIN, Data, Distribution, Targets, padded
from calibjax.curves._kaplan_meier import (
    ProductLimit,
    clean_lifetimes,
    lifetimes_as_data,
    numbers_below,
    predicted_risks,
    product_limit,
)
from calibjax.estimators import UniformBinning
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
    predictions: Distribution | Data,
    targets: Targets | None,
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
        predictions, targets, where: as in `Data`, or one `Data` with `where` alone and None: n >= 1
            predictions of numbers, with a cdf, and `Between.right_censored`, or an array ``[n]`` if
            nothing is censored.
        at: times t, ``[t]``, in units of the targets.
        n_bins: the number of groups B, from 1 to 2^24.
        confidence_level: the probability of each interval, in (0, 1).

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
    data = lifetimes_as_data(predictions, targets, at, where=where, without=NOT_PLAIN)
    n_bins = UniformBinning(n_bins).n_bins
    level = one_level(confidence_level, jnp.float32)
    return _risk_curve(padded(data), jnp.asarray(at), level, n_bins=n_bins)


@on_all_rows
def _risk_curve(data: Data, at: jax.Array, level: Level, *, n_bins: int) -> RiskCurve:
    data = clean_lifetimes(data)
    kept, dtype = data.weights != 0, data.weights.dtype
    n, level = jnp.sum(kept, dtype=jnp.int32), level.astype(dtype)
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


# The neighbourhood of a row is n^(-1/5) / 4 of the rows on either side of it.
_SPAN, _POWER = 0.25, -0.2
# The number of rows whose neighbourhoods are looked at together.
_TOGETHER = 64


def integrated_calibration_index(
    predictions: Distribution | Data,
    targets: Targets | None,
    at: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """How far predicted risks are from observed ones on average, at each time.

    .. math::
        \\mathrm{ICI}(t) = \\frac{1}{n} \\sum_i |F_i(t) - (1 - \\hat S(t \\mid F_i(t)))|,

    where S(t | r) is the Kaplan-Meier estimate of the rows whose predicted risks are near r: the
    nearest neighbour estimate of Akritas with the rows that are at most n^(4/5) / 4 ranks away.
    Austin et al. take a regression of the hazard on log(-log(1 - r)) instead.

    Noise of the observed risks adds to it: it is not 0 for a calibrated model, and larger for fewer
    rows.  Compare models on the same rows, and ask `calibration_test` whether a model is wrong.

    Args:
        predictions, targets: as in `Data`, or one `Data` and None: n >= 1 predictions of numbers,
            with a cdf, and `Between.right_censored`, or an array ``[n]`` if nothing is censored.
        at: times t, ``[t]``, in units of the targets.
        where, weights: as in `Data`; weights count in the mean and in the Kaplan-Meier estimates.
            Neighbourhoods are of so many rows, whatever these weigh.

    Returns:
        Numbers in [0, 1], ``[t]``.  They are NaN where nothing is known about t in a neighbourhood,
        because all its rows are censored before, and inside jit if a kept row is invalid.
        O(n^2) time for each t, O(n) memory.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            rows that are censored on the left or binned.

    See also:
        `risk_curve` for a picture in groups.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(400), jnp.linspace(0.5, 2.0, 400))
        >>> time, end = predictions.sample(jax.random.key(0)), jnp.full(400, 2.0)
        >>> targets = cj.Between.right_censored(jnp.minimum(time, end), time <= end)
        >>> late = cj.Weibull(predictions.concentration, 2 * predictions.scale)
        >>> index = [cj.integrated_calibration_index(p, targets, jnp.array([1.0]))
        ...          for p in (predictions, late)]
        >>> [float(x[0].round(2)) for x in index]
        [0.05, 0.2]

    Reference: Austin, Harrell and van Klaveren, Graphical calibration curves and the integrated
    calibration index (ICI) for survival models, Statistics in Medicine 2020; Akritas, Nearest
    neighbor estimation of a bivariate distribution under random censoring, Annals of Statistics
    1994; Heagerty, Lumley and Pepe, Time-dependent ROC curves for censored survival data and a
    diagnostic marker, Biometrics 2000, for the width.
    """
    data = lifetimes_as_data(predictions, targets, at, where=where, weights=weights)
    return _ici(*gathered((padded(data), jnp.asarray(at))))


@quick_jit
def _ici(data: Data, at: jax.Array) -> jax.Array:
    data = clean_lifetimes(data)
    kept, dtype = data.weights != 0, data.weights.dtype
    n = jnp.sum(kept).astype(dtype)
    # Twice the distance of ranks, which are in the middle of equal risks.
    most = 2 * _SPAN * n ** (1 + _POWER)

    def of_time(t: jax.Array) -> jax.Array:
        risks = predicted_risks(data.predictions, t)
        below, up_to = numbers_below(risks, kept)
        ranks = (below + up_to).astype(dtype)

        def gap(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            risk, rank = row
            near = kept & (jnp.abs(ranks - rank) <= most)
            near_weights = jnp.where(near, data.weights, 0.0)
            found = product_limit(near_weights[None], data.targets, t)
            return jnp.abs(risk - found.risk()[0])

        gaps = lax.map(gap, (risks, ranks), batch_size=_TOGETHER)
        return jnp.sum(jnp.where(kept, data.weights * gaps, 0.0)) / jnp.sum(data.weights)

    return lax.map(of_time, at.astype(dtype))
