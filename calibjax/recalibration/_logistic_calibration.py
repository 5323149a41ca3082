"""Slope and intercept of a logistic recalibration, and what medical papers show beside them."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np
from jax.typing import ArrayLike

from calibjax._base.sharding import on_one_device
from calibjax._base.struct import is_traced
from calibjax._base.text import p_in_words
from calibjax._data.data import Data, RowOptions
from calibjax._data.distribution import Distribution
from calibjax._data.padding import padded
from calibjax.estimators.labels import binary_as_data
from calibjax.measures.events import Design, logits_of, regression_measures
from calibjax.measures.measure import Subset
from calibjax.measures.sampling import Estimate, Sampling, mean_interval, wilson_interval
from calibjax.nulls.on_host import label_probabilities
from calibjax.nulls.ranks import one_level

# An interval whose end is not found below this size has no end.
_LARGEST = 1e6


class LogisticCalibration(NamedTuple):
    """The measures of calibration of a clinical validation; see `logistic_calibration`.

    It prints them.

    Args:
        observed_over_expected: events over the sum of probabilities; ideal 1.
        intercept: a of logit p + a, calibration-in-the-large; ideal 0, above 0 risk is
            under-estimated.
        slope: b of a + b logit p; ideal 1, below 1 risks are too extreme.
        joint_intercept: a of a + b logit p.
        pvalue: the p-value of a = 0 and b = 1, by the likelihood ratio; for dependent rows by
            Hotelling's test.
        ici: the mean distance of p from a smooth curve of frequencies, the ICI.
        n_rows, n_events: the numbers of rows and events.
        note: the reason for an infinite or NaN result, or empty.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.2, 0.4, 0.5, 0.9, 0.7, 0.3]))
        >>> found = cj.logistic_calibration(predictions, jnp.array([0, 1, 0, 1, 1, 0]))
        >>> round(found.observed_over_expected.estimate, 3), found.n_events
        (1.0, 3)
    """

    observed_over_expected: Estimate
    intercept: Estimate
    slope: Estimate
    joint_intercept: float
    pvalue: float
    ici: float
    n_rows: int
    n_events: int
    note: str = ""

    def __repr__(self) -> str:
        """Words, as `print` shows them."""
        lines = [
            f"LogisticCalibration of {self.n_rows} rows, {self.n_events} events",
            f"  observed / expected {self.observed_over_expected}: ideal 1",
            f"  intercept {self.intercept}: ideal 0; above 0, risk is under-estimated",
            f"  slope {self.slope}: ideal 1; below 1, risks are too extreme",
            f"  joint test, intercept 0 and slope 1: {p_in_words(self.pvalue)}",
            f"  integrated calibration index {self.ici:.4g}",
        ]
        return "\n".join(lines + [f"  {self.note}"] * bool(self.note))


def logistic_calibration(
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    confidence_level: float = 0.95,
    **rows: Unpack[RowOptions],
) -> LogisticCalibration:
    """Computes calibration slope and intercept, observed over expected, and the ICI.

    .. math::
        P(Y_i = 1) = \\sigma(a + b \\operatorname{logit} p_i), \\qquad
        \\frac{O}{E} = \\frac{\\sum_i y_i}{\\sum_i p_i}, \\qquad
        \\mathrm{ICI} = \\frac{1}{n} \\sum_i |p_i - q(p_i)|

    The slope is the maximum likelihood estimate of b with a free; the intercept is that of a with
    b = 1, calibration-in-the-large.  Their intervals are those of the profile likelihood, and with
    clusters or times Student's, from the influence of these on the estimates.  The interval of
    O / E is Wilson's of the share of events, divided by the mean probability.  q is a restricted
    cubic spline in logit p fitted to the same rows, so that the ICI is above 0 also for calibrated
    models; NaN if the fit has no finite estimate.

    With `weights` ``[n, 2]``, such as 20 without and 1 with an event, rows were sampled by their
    label.  The likelihood is then that of sampled rows, with the offset log(w_0 / w_1) and without
    weights (Prentice and Pyke, Biometrika 1979), and the interval of O / E is that of its log.

    Slope 1 and intercept 0 are necessary for calibration, but not sufficient: `calibration_test`
    detects all errors.

    Args:
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Bernoulli predictions, such as
            `top_label` or `one_vs_rest` make, and booleans or integers 0 and 1.
        confidence_level: the probability of each interval, in (0, 1).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`; n rows of unequal
            weights count as (sum w)^2 / sum w^2 in intervals and the p-value.

    Returns:
        LogisticCalibration, of Python floats.  If all rows or no row had the event, the intercept
        is infinite with one finite end, and the slope is NaN; the slope is also NaN if all
        probabilities are equal.  If one logit separates rows with and without the event, the slope
        is infinite with one finite end.  ``note`` says so.  Takes about a hundred passes over the
        rows, and the fit of a spline.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value; an argument is traced;
            a probability of 0 or 1, which has no logit.

    See also:
        `corp_curve` and `reliability_curve` for pictures, `fit_recalibrator` to recalibrate.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> logits = jax.random.normal(jax.random.key(0), (1000,))
        >>> events = cj.Bernoulli.from_logits(logits).sample(jax.random.key(1))
        >>> too_sure = cj.Bernoulli.from_logits(2 * logits)
        >>> slope = cj.logistic_calibration(too_sure, events).slope
        >>> round(slope.estimate, 2), slope.high < 1
        (0.49, True)

    Reference: Cox, Two further applications of a model for binary regression, Biometrika 1958;
    Van Calster et al., Calibration: the Achilles heel of predictive analytics, BMC Medicine 2019;
    Austin and Steyerberg, The integrated calibration index (ICI) and related metrics, Statistics in
    Medicine 2019.
    """
    from scipy.special import ndtri

    if is_traced((predictions, targets, rows)):
        raise TypeError("logistic_calibration must be called outside of jit, got traced arguments.")
    level = float(one_level(confidence_level, np.float64))
    data = padded(on_one_device(binary_as_data(predictions, targets, **rows)))
    (index,) = np.nonzero(data.counted_rows())
    probs = np.asarray(label_probabilities(data)[0], np.float64)[index]
    n_certain = int(np.sum((probs == 0).any(axis=1)))
    if n_certain:
        raise ValueError(
            f"predictions must be above 0 and below 1, got {n_certain} of {len(index)} rows "
            "at 0 or 1, which have no logit; clip them or exclude them with where=."
        )
    happened, logits = np.asarray(data.targets)[index] == 1, logits_of(probs)
    sampling = of_likelihood = Sampling.of_data(data, data.n).of_rows(index)
    counts = sampling.shares() * sampling.n_effective()
    likelihood = _Likelihood(logits, happened, counts, np.zeros_like(logits))
    if data.outcome_weights is not None:
        of_none, of_event = np.asarray(data.outcome_weights, np.float64)[index].T
        offset = np.log(of_none / of_event)
        likelihood = _Likelihood(logits, happened, np.ones_like(offset), offset)
        of_likelihood = dataclasses.replace(sampling, weights=None)
    least, slope, words = likelihood.best_slope()
    beside = likelihood.intercept(slope) if np.isfinite(slope) else math.nan
    intercept = likelihood.intercept(1.0)
    at_one = functools.partial(likelihood.deviance, b=1.0)
    of_slope, pvalue = Estimate(np.nan, np.nan, np.nan), np.nan
    if sampling.is_dependent:

        def interval(estimate: float, moves: np.ndarray) -> Estimate:
            """Student's interval from the influence of rows; NaN for an infinite estimate."""
            ends = mean_interval(moves, level, sampling=of_likelihood, has_skewness=False)
            low, high = ends if ends and np.isfinite(estimate) else (np.nan, np.nan)
            return Estimate(estimate, estimate + low, estimate + high)

        of_intercept = interval(intercept, likelihood.fit(1.0)[1][:, 0])
        moves = likelihood.fit()[1]
        of_slope = interval(slope, moves[:, -1])
        if np.isfinite(slope):
            pvalue = of_likelihood.pvalue(np.array([beside, slope - 1]) + moves)
    else:
        quantile = float(ndtri((1 + level) / 2) ** 2)
        of_intercept = _profile_interval(at_one, intercept, at_one(intercept), quantile)
        if not np.isnan(slope):
            of_slope = _profile_interval(likelihood.profile_deviance, slope, least, quantile)
            # Two numbers: the chi-squared distribution is an exponential one.
            pvalue = float(np.exp(-max(at_one(0.0) - least, 0.0) / 2))
    expected = float(sampling.shares() @ probs[:, 1])
    share = float(sampling.shares() @ happened)
    low, high = wilson_interval(happened, level, sampling)
    if data.outcome_weights is not None and 0 < share < 1:
        # The expected share also depends on the targets: the interval is that of log O / E.
        parts = happened / share - probs[:, 1] / expected
        low, high = share * np.exp(np.array(mean_interval(parts, level, sampling=sampling)))
    counted = Subset(np.arange(len(logits)), sampling, level, np.arange(len(logits)))
    index_of_all = regression_measures(logits, happened, None)["ICI"](counted)
    return LogisticCalibration(
        observed_over_expected=Estimate(share / expected, low / expected, high / expected),
        intercept=of_intercept,
        slope=of_slope,
        joint_intercept=beside,
        pvalue=pvalue,
        ici=math.nan if index_of_all is None else index_of_all.value,
        n_rows=len(happened),
        n_events=int(happened.sum()),
        note=words,
    )


class _Likelihood(NamedTuple):
    """The likelihood of events whose logits are a + b l, for logits l of the model.

    Rows that were sampled by their label have the logits a + b l + `offset`.
    """

    logits: np.ndarray
    happened: np.ndarray
    counts: np.ndarray
    offset: np.ndarray

    def deviance(self, a: float, b: float) -> float:
        """-2 log likelihood; 0 in the limit of infinite a, where it agrees with all events."""
        if np.isinf(a):
            return 0.0
        sign = np.where(self.happened, -1.0, 1.0)
        logits = a + b * self.logits + self.offset
        return float(2 * self.counts @ np.logaddexp(0.0, sign * logits))

    def intercept(self, b: float) -> float:
        """The a of maximum likelihood: the expected number of events is the observed one."""
        from scipy.optimize import brentq
        from scipy.special import expit

        events = self.counts @ self.happened
        if self.happened.all() or not self.happened.any():
            return np.inf if self.happened.all() else -np.inf
        share = events / self.counts.sum()
        middle, moved = np.log(share) - np.log1p(-share), b * self.logits + self.offset

        def excess(a: float) -> float:
            return float(self.counts @ expit(a + moved) - events)

        # Rounding must not put the root out of the bracket.
        low, high = middle - moved.max() - 1e-6, middle - moved.min() + 1e-6
        return float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14))

    def profile_deviance(self, b: float) -> float:
        return self.deviance(self.intercept(b), b)

    def fit(self, b: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Maximum likelihood a, and b unless given, and the influence of each row on them."""
        ones, shares = np.ones_like(self.logits), self.counts / self.counts.sum()
        basis = np.stack([ones, self.logits] if b is None else [ones], axis=1)
        design = Design.of(basis, self.offset + (b or 0.0) * self.logits, shares)
        found = design.fit((shares * self.happened) @ basis[None])
        return found.coefficients[0], design.influence(found.probabilities[0], self.happened)

    def best_slope(self) -> tuple[float, float, str]:
        """The least deviance, the slope there, and words if that is infinite or unknown."""
        if self.happened.all() or not self.happened.any():
            all_or_none = "all rows" if self.happened.all() else "no row"
            return 0.0, np.nan, f"{all_or_none} had the event: the slope is undefined"
        if np.ptp(self.logits) == 0:
            return np.nan, np.nan, "all probabilities are equal: the slope is undefined"
        with_event, without = self.logits[self.happened], self.logits[~self.happened]
        for sign, high, low in ((1.0, with_event, without), (-1.0, without, with_event)):
            if high.min() >= low.max():
                words = "one probability parts events from the other rows: the slope is infinite"
                tied = self.logits == low.max()
                # An infinite slope leaves the rows whose logit is the one that parts the others.
                ties = _Likelihood(*(x[tied] for x in self))
                return ties.profile_deviance(0.0), sign * np.inf, words
        intercept, slope = self.fit()[0].tolist()
        return self.deviance(intercept, slope), slope, ""


def _profile_interval(
    deviance: Callable[[float], float], best: float, least: float, quantile: float
) -> Estimate:
    """The interval of numbers whose deviance is at most the least one plus the quantile."""
    from scipy.optimize import brentq

    def excess(x: float) -> float:
        return deviance(x) - least - quantile

    def end(direction: float) -> float:
        if best == direction * np.inf:
            return best
        # From an infinite estimate, start at a number inside the interval.
        start = best if np.isfinite(best) else -direction * _first_inside(excess, -direction)
        inside, length = start, 1.0
        while excess(start + direction * length) < 0:
            inside, length = start + direction * length, 2 * length
            if length > _LARGEST:
                return direction * np.inf
        return float(brentq(excess, inside, start + direction * length, xtol=1e-10))

    return Estimate(float(best), end(-1.0), end(1.0))


def _first_inside(excess: Callable[[float], float], direction: float) -> float:
    """A power of two that is inside the interval, in this direction from 0."""
    length = 1.0
    while excess(direction * length) > 0 and length < _LARGEST:
        length *= 2
    return length
