"""Calibration curves with confidence bands: of an event, and of risks by one time in groups."""

import functools
import math
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._base.check import check_integer
from calibjax._base.compile import quick_jit
from calibjax._base.sharding import on_one_device
from calibjax._base.struct import is_traced, struct
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data, RowOptions
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import IntervalCensored, Targets
from calibjax._data.padding import padded
from calibjax.estimators.labels import binary_as_data
from calibjax.measures.events import RARE, expit, fit_to_rows, logits_of, spline_basis
from calibjax.measures.measure import Subset
from calibjax.measures.risk_by_time import Lifetimes, risk_and_ratio
from calibjax.measures.sampling import Sampling
from calibjax.nulls.on_host import label_probabilities
from calibjax.nulls.ranks import one_level
from calibjax.scores import numbers_as_data

# The number of probabilities on the curve, and of bars of the histogram.
_N_POINTS, _N_BARS = 100, 25
# The share of rows beyond each end of the curve.
_BEYOND = 0.005


@struct
class CalibrationCurve:
    """A smooth frequency of events, with confidence bands; see `calibration_curve`.

    Args:
        predicted: probabilities, increasing, ``[100]``.
        frequency: the fitted frequency of the event at each of them, ``[100]``.
        pointwise_low, pointwise_high: a confidence interval at each probability alone, ``[100]``.
        simultaneous_low, simultaneous_high: a band that covers the whole curve, ``[100]``.
        edges: the ends of the bins of a histogram of the predictions, ``[26]``.
        count: the number of rows in each bin, ``[25]``; the outer bins include those beyond.
        is_rare: whether the median prediction is below 0.05.  Probabilities and bins are then
            evenly spaced on a logarithmic axis, and plots have such axes.
        confidence_level: the probability with which each band covers.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.linspace(0.1, 0.9, 400))
        >>> curve = cj.calibration_curve(predictions, predictions.sample(jax.random.key(0)))
        >>> curve.predicted[[0, -1]].round(2).tolist(), int(curve.count.sum())
        ([0.1, 0.9], 400)
    """

    predicted: np.ndarray
    frequency: np.ndarray
    pointwise_low: np.ndarray
    pointwise_high: np.ndarray
    simultaneous_low: np.ndarray
    simultaneous_high: np.ndarray
    edges: np.ndarray
    count: np.ndarray
    is_rare: bool
    confidence_level: float


def calibration_curve(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    **rows: Unpack[RowOptions],
) -> CalibrationCurve:
    """The frequency of an event as a smooth function of its probability, with confidence bands.

    .. math::
        \\operatorname{logit} P(Y_i = 1) = \\sum_{k=1}^{K} t_k B_k(\\operatorname{logit} p_i)

    is fitted by maximum likelihood.  B is a restricted cubic spline of at most five knots, as for
    the ICI of `evaluate`.  The bands are those of the logit, by the delta method with the influence
    of rows, clusters or times.  With m of these they are the curve plus and minus c standard
    errors.  For the pointwise band c is Student's quantile.  For the simultaneous band it is

    .. math::
        c^2 = \\frac{K (m - 1)}{m - K} F_{K, m - K}

    which covers the curve at all p at once (Scheffé and Hotelling).  Where the simultaneous band
    does not contain p, the error is significant.  The bands are asymptotic, and assume that the
    spline describes the error.

    The curve shows the probabilities between the quantiles 0.005 and 0.995 of the predictions.  It
    is computed with NumPy in float64, outside of jit, in O(n) time.

    Args:
        predictions, targets: as in `Data`, or one `Data`: Bernoulli predictions, such as
            `top_label` or `one_vs_rest` make.
        confidence_level: the probability of the bands.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CalibrationCurve, of NumPy arrays.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value, or traced; a
            probability of 0 or 1, which has no logit; too few rows, or no finite estimate.

    See also:
        `calibjax.plot.calibration` for a plot; `reliability_curve` and `corp_curve` for bands of
        calibrated models.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = jax.random.normal(jax.random.key(0), (2000,))
        >>> events = cj.Bernoulli.from_logits(logits).sample(jax.random.key(1))
        >>> curve = cj.calibration_curve(cj.Bernoulli.from_logits(2 * logits), events)
        >>> at = [10, 90]
        >>> curve.predicted[at].round(2).tolist(), curve.frequency[at].round(2).tolist()
        ([0.1, 0.9], [0.27, 0.75])
        >>> bool(curve.simultaneous_high[90] < 0.9)
        True

    Reference: Harrell, Regression modeling strategies, 2015, sections 2.4 and 10.11; Scheffé, The
    analysis of variance, 1959, section 3.5; Austin and Steyerberg, Statistics in Medicine 2014.
    """
    from scipy.special import fdtri, stdtrit

    if is_traced((predictions, targets, rows)):
        raise TypeError("calibration_curve must be called outside of jit, got traced arguments.")
    level = float(one_level(confidence_level, np.float64))
    data = padded(on_one_device(binary_as_data(predictions, targets, **rows)))
    logits = logits_of(np.asarray(label_probabilities(data)[0], np.float64))
    (index,), names = np.nonzero(data.counted_rows()), data.names_of_rows()
    sampling = Sampling.of_data(data, data.n)
    some, y = Subset(index, sampling.of_rows(index), level, names), np.asarray(data.targets)
    found = fit_to_rows(some, logits, y)
    if isinstance(found, str):
        raise ValueError(f"predictions and targets have no calibration curve: {found}.")
    design, _, fits = found
    p = expit(logits[index])
    is_rare = bool(np.median(p) < RARE)
    first, last = np.quantile(p, [_BEYOND, 1 - _BEYOND]).tolist()

    def spaced(number: int) -> np.ndarray:
        return (np.geomspace if is_rare else np.linspace)(first, last, number)

    grid, edges = spaced(_N_POINTS), spaced(_N_BARS + 1)
    of_grid = np.log(grid) - np.log1p(-grid)
    basis = spline_basis(logits[index], of_grid)
    curve = of_grid + basis @ fits.coefficients[0]
    moves = design.influence(fits.probabilities[0], y[index])
    of_points = [some.sampling.error(moves @ functions) for functions in basis]
    errors, freedom = np.array([error for error, _ in of_points]), of_points[0][1]
    k = design.mixing.shape[1]
    left = freedom - k + 1
    each, together = stdtrit(freedom, (1 + level) / 2), np.inf
    if left > 0:
        together = (k * freedom / left * fdtri(k, left, level)) ** 0.5

    def end(c: float) -> np.ndarray:
        return expit(curve + c * errors)

    bands = end(-each), end(each), end(-together), end(together)
    count = np.histogram(np.clip(p, first, last), edges)[0]
    return CalibrationCurve(grid, expit(curve), *bands, edges, count, is_rare, level)


@struct
class RiskCurve:
    """Predicted and observed risks by one time in groups of predicted risk; see `risk_curve`.

    Args:
        predicted: the mean predicted risk of each group, increasing, ``[b]``.
        observed: the Kaplan-Meier risk, ``[b]``; NaN where no row was followed that long.
        low, high: Greenwood's interval for it, ``[b]``; NaN where the observed risk is 0, 1 or NaN.
        count: the number of rows of each group, ``[b]``.
        time: the time.
        confidence_level: the probability of each interval.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.ones(4), jnp.array([1.0, 1.0, 4.0, 4.0]))
        >>> targets = cj.IntervalCensored.right_censored(jnp.arange(1.0, 5.0), [1, 0, 0, 1])
        >>> curve = cj.risk_curve(predictions, targets, time=1.5, n_bins=2)
        >>> curve.predicted.round(2).tolist(), curve.observed.tolist(), curve.count.tolist()
        ([0.31, 0.78], [0.0, 0.5], [2, 2])
    """

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    time: float
    confidence_level: float


def risk_curve(
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    time: float | None = None,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    **rows: Unpack[RowOptions],
) -> RiskCurve:
    """Predicted against Kaplan-Meier risk by a time, in equally large groups of predicted risk.

    .. math::
        \\bar F_b = \\frac{1}{n_b} \\sum_{i \\in b} F_i(t), \\qquad
        1 - \\hat S_b(t) = 1 - \\prod_{s \\le t} \\Big(1 - \\frac{d_s}{Y_s}\\Big)

    with d events among Y rows at risk at the times s of events of group b.  The interval is that of
    log(-log S) with Greenwood's variance.  Within a group the censoring must not depend on the
    target.  Rows of equal risk are in one group, so that there may be fewer groups.

    It is computed with NumPy in float64, outside of jit, in O(n log n) time.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of real numbers with a
            cdf, such as `SurvivalCurve` or `Weibull`, and numbers or right-censored
            `IntervalCensored`.
        time: t, positive, and at most the last time of every curve; by default the median time of
            events.
        n_bins: the number of groups.
        confidence_level: the probability of each interval.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`; with these the
            variance is that of weighted rows, clusters or times.

    Returns:
        RiskCurve, of NumPy arrays.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value, or traced; targets
            that are censored otherwise.

    See also:
        `calibjax.plot.risk` for a plot, `pit_curve` for all times at once.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> model = cj.Weibull(jnp.ones(900), jnp.exp(jax.random.normal(jax.random.key(0), (900,))))
        >>> y = 0.5 * model.sample(jax.random.key(1))  # events are earlier than predicted
        >>> curve = cj.risk_curve(model, y, time=1.0, n_bins=3)
        >>> [f"{p:.2f} {low:.2f}" for p, low in zip(curve.predicted, curve.low)]
        ['0.31 0.45', '0.62 0.80', '0.91 0.94']

    Reference: Harrell, Regression modeling strategies, 2015, section 20.3; Greenwood 1926.
    """
    if is_traced((predictions, targets, time, rows)):
        raise TypeError("risk_curve must be called outside of jit, got traced arguments.")
    n_bins, level = check_integer("n_bins", n_bins, 1), float(confidence_level)
    one_level(confidence_level, np.float32)
    unused = ("outcome_weights",)
    data = numbers_as_data(predictions, targets, intervals=True, without=unused, **rows)
    data = on_one_device(data)
    if data.predictions.target_kind != "real":
        name = type(data.predictions).__name__
        raise TypeError(f"predictions must be of real numbers, got {name} predictions.")
    (kept, _), y = data.counted(), data.targets
    ends = (y.low, y.high) if isinstance(y, IntervalCensored) else (y, y)
    low, high = (np.asarray(x, np.float64)[kept] for x in ends)
    is_event = low == high
    if not (is_event | np.isposinf(high)).all():
        raise ValueError("targets must be known or censored on the right.")
    time = float(np.median(low[is_event])) if time is None else float(time)
    of_rows = _risks(padded(data).predictions, time)
    risk, last = (np.asarray(x, np.float64)[: data.n][kept] for x in of_rows)
    if not 0 < time <= last.min() * (1 + 1e-6):
        raise ValueError(f"time must be in (0, {last.min():.6g}], where curves end, got {time}.")
    sampling = Sampling.of_data(data, data.n)
    lifetimes = Lifetimes(np.array([time]), 1 - risk[:, None], low, is_event)
    edges = np.unique(np.quantile(risk, np.arange(1, n_bins) / n_bins, method="higher"))
    groups, found = np.searchsorted(edges, risk, "right"), []
    for group in np.unique(groups):
        some = groups == group
        of_group = np.flatnonzero(kept)[some]
        group_rows = Subset(of_group, sampling.of_rows(of_group), level, np.arange(data.n))
        observed, _ = risk_and_ratio(lifetimes.chosen(some), 0, group_rows)
        mean = float(group_rows.sampling.shares() @ risk[some])
        value = math.nan if observed is None else observed.value
        interval = observed and observed.interval
        found.append((mean, value, *(interval or (math.nan, math.nan)), some.sum()))
    predicted, kaplan_meier, lows, highs, count = map(np.array, zip(*found, strict=True))
    return RiskCurve(predicted, kaplan_meier, lows, highs, count, time, level)


@functools.partial(quick_jit, light=True)
def _risks(predictions: Distribution, time: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F(t), and t or the last time of which a forecast says something, each ``[n]``."""
    at = jnp.full(len(predictions), time)
    return 1 - predictions.survival(at), restricted(predictions, at)
