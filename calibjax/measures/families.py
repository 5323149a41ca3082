r"""The measures of each family of predictions: scores, coverage, and what else its field prints.

**Targets of which only intervals are known**, such as censored lifetimes.
The number of events and the sum of the cumulative hazards H(t) = -log P(Y > t), over the times t
until which rows were seen, have one mean, whatever censors, and the variance of their difference is
that mean (a martingale).

A survival curve says H at its times and not in between.  With the gain G_ik of H over cell k, the
hazard of row i in the cell is taken to be G_ik times a function of time that all rows share.  The
events of the cell estimate it (Breslow), which leaves of the expected number of events

    E_k = N_k / sum_{events e in k} 1 / sum_{i seen at t_e} G_ik,

exact for linear H, for hazards t^a and for any others of this form, however coarse the times are.

Reference: Andersen, Borgan, Gill and Keiding, Statistical models based on counting processes, 1993,
section VII.2 for both.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.compile import quick_jit
from calibjax._base.struct import with_fields
from calibjax._base.text import named_rows
from calibjax._data.capabilities import restricted
from calibjax._data.data import Data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import IntervalCensored, known_point
from calibjax.distributions import Empirical, Quantiles, SurvivalCurve
from calibjax.expectations.defaults import has_log_prob
from calibjax.measures.labels import label_measures
from calibjax.measures.measure import (
    OBSERVED,
    PREDICTED,
    Measure,
    MeasureResult,
    NumberOfRows,
    Subset,
    ratio_of_means,
)
from calibjax.measures.quantiles import NONNEGATIVE, coverage_name, quantile_measures
from calibjax.measures.risk_by_time import Lifetimes, measures_by_time
from calibjax.scores import PITInterval, crps, log_score, pit_and_interval, pit_interval

# Names of the mean of U = F(y), or of what is known of it, and of the number of events.
MEAN_PIT, EVENTS = "mean PIT", "events"


def measures_of_intervals(data: Data) -> dict[str, NumberOfRows]:
    """What does not need to know the targets, and the number of events of censored lifetimes.

    If U = F(y) is uniform, so it is in the interval that is known, and the middle of this interval
    has the mean 1/2, whatever hides the target.
    """
    n = data.n_kept()
    low, high = (np.asarray(x, np.float64)[:n] for x in pit_interval(data))
    mean_pit = Measure((low + high) / 2, possible=(0.0, 1.0), expected=(0.5, 0.5))
    return {MEAN_PIT: mean_pit} | measures_by_time(data) | _events(data)


def _events(data: Data) -> dict[str, NumberOfRows]:
    """How many events happened, and how many a calibrated model has until rows were last seen.

    None unless some rows are censored on the right and all others are known, for counts, and for
    weights.  For events of dependent rows only the mean is known.
    """
    predictions, targets, n = data.predictions, data.targets, data.n_kept()
    low, high = (np.asarray(x)[:n] for x in (targets.low, targets.high))
    is_seen, is_censored = low == high, np.isposinf(high) & np.isfinite(low)
    is_right = is_censored.any() and (is_seen | is_censored).all()
    if not (is_right and predictions.target_kind == "real") or data.weights is not None:
        return {}
    times, hazards, is_before_end = (np.asarray(x)[:n] for x in _hazards(predictions, targets))
    hazards, is_event = hazards.astype(np.float64), is_seen & is_before_end
    curves = Lifetimes.of(data)
    if curves is not None:
        curves = curves._replace(times=times.astype(np.float64), is_event=is_event)

    def result(rows: Subset) -> MeasureResult | None:
        some, half = rows.index, 0.0
        expected = float(hazards[some].sum())
        if curves is not None:
            expected = _expected(curves.chosen(some), hazards[some])
        if not math.isfinite(expected):
            return None
        if not rows.sampling.is_dependent:
            half = float(jax.scipy.special.ndtri((1 + rows.level) / 2)) * math.sqrt(expected)
        ends = max(expected - half, 0.0), expected + half
        return MeasureResult(float(is_event[some].sum()), None, ends)

    return {EVENTS: result}


@functools.partial(quick_jit, light=True)
def _hazards(p: Distribution, targets: IntervalCensored) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Until when rows were seen, H there, and whether a forecast is about that time."""
    at = known_point(p, targets)
    until = restricted(p, at)
    return until, -jnp.log(p.survival(until)), at <= until


# Curves may be flat where events happened, and 0.
@np.errstate(divide="ignore", invalid="ignore")
def _expected(curves: Lifetimes, hazards: np.ndarray) -> float:
    """The expected number of events; H of curves on one grid is interpolated by their events."""
    grid, survival, times, is_event = curves
    ends = -np.log(np.pad(survival, ((0, 0), (1, 0)), constant_values=1.0))
    gains = np.diff(ends, axis=1)
    cells, expected = np.searchsorted(grid, times), 0.0
    for k in range(grid.size):
        inside = np.flatnonzero(cells == k)
        inside = inside[np.argsort(-times[inside])]
        later = gains[cells > k, k].sum()
        at_risk = later + np.cumsum(gains[inside, k])
        # Rows that were seen until the same time are all at risk.
        last = np.searchsorted(-times[inside], -times[inside], side="right") - 1
        events = is_event[inside]
        ratio = np.sum(1 / at_risk[last][events])
        if 0 < ratio < math.inf:
            expected += events.sum() / ratio
        else:  # S is taken to be linear in a cell without events.
            expected += later + np.sum(hazards[inside] - ends[inside, k])
    return float(expected)


# The central intervals whose coverage is counted.
_COVERAGES = 0.5, 0.9
# The number of draws for one beyond the ends of an interval, where draws take long: more draws move
# the ends by less than their own uncertainty.
_DRAWS_BEYOND = 10


def few_draws(confidence_level: float, n_resamples: int) -> int:
    """How many draws say where a number of a calibrated model lies, where draws take long."""
    return min(round(_DRAWS_BEYOND / (1 - confidence_level)) - 1, n_resamples)


def measures(
    key: jax.Array,
    data: Data,
    level: float,
    n_resamples: int,
    names: np.ndarray | None = None,
    groups: Sequence[np.ndarray] | None = None,
) -> list[dict[str, MeasureResult]]:
    """The classical numbers that exist for predictions of this family, by their names.

    Args:
        key: a key of `jax.random`.
        data: n predictions and targets, of which the kept rows come first.
        level: the confidence level of intervals.
        n_resamples: the number of data sets that are drawn from the predictions.
        names: what notes call rows; None for their numbers, from 0.
        groups: the indices of the rows of each group, for its numbers; None for one of all rows.
    """
    rows = Subset.of(data, level, groups, names)
    if data.is_censored:
        found = _log_score(data) | measures_of_intervals(data)
    elif isinstance(data.predictions, Labels):
        found = label_measures(key, data, rows, n_resamples)
    elif isinstance(data.predictions, Quantiles):
        found = quantile_measures(data)
    else:
        is_number = data.predictions.target_shape == "n"
        found = _log_score(data) | (_of_numbers(key, data) if is_number else {})
    results: list[dict[str, MeasureResult]] = []
    for some in rows:
        numbers = {name: number(some) for name, number in found.items()}
        results.append({name: x for name, x in numbers.items() if x is not None})
    return results


def log_scores(data: Data) -> np.ndarray | None:
    """The log scores of the n kept rows, which come first, ``[n]``; None without a density."""
    if not has_log_prob(data.predictions):
        return None
    return np.asarray(log_score(data))[: data.n_kept()]


def _log_score(data: Data) -> dict[str, NumberOfRows]:
    scores = log_scores(data)
    if scores is None:
        return {}
    # No probability is above 1; a density may be.
    least = 0.0 if data.predictions.target_kind == "integer" else -math.inf
    measure = Measure(scores, possible=(least, math.inf))

    def of_curves(rows: Subset) -> MeasureResult:
        lost = rows.index[np.isposinf(scores[rows.index])]
        if not len(lost):
            return measure(rows)
        curves = "an event where its curve is" if len(lost) == 1 else "events where curves are"
        count = "" if len(lost) == 1 else f"{len(lost)} "
        return MeasureResult(math.inf, note=f"{count}{curves} flat: {named_rows(rows.names[lost])}")

    return {"log loss": of_curves if isinstance(data.predictions, SurvivalCurve) else measure}


def _of_numbers(key: jax.Array, data: Data) -> dict[str, NumberOfRows]:
    predictions, n = data.predictions, data.n_kept()
    targets, means, deviations = (
        np.asarray(x, np.float64)[:n]
        for x in (restricted(predictions, data.targets), *moments(predictions))
    )
    found: dict[str, NumberOfRows] = {}
    if np.isfinite(means).all():
        found = {PREDICTED: Measure(means), OBSERVED: Measure(targets)}
    found["CRPS"] = Measure(crps(data), possible=NONNEGATIVE)
    if isinstance(predictions, Empirical) and predictions.weights is None and not predictions.fair:
        fair = np.asarray(crps(data.replace(predictions=with_fields(predictions, fair=True))))[:n]
        if np.isfinite(fair).all():  # where each row has two members
            found["fair CRPS"] = Measure(fair)
    squares, n_members = np.square(targets - means), numbers_of_members(predictions, n)
    ratio = _error_over_variance(squares, np.square(deviations), n_members)
    if np.isfinite(ratio.columns).all() and np.isfinite(deviations).all():
        found["squared error / variance"] = ratio
        if n_members is not None:
            roots: Any = {"function": lambda means: np.sqrt(means[..., 0]), "possible": NONNEGATIVE}
            found["spread"] = Measure(np.asarray(ratio.columns)[:, 1], **roots)
            found["RMSE of the mean"] = Measure(squares, **roots)
    pits, ends = pit_and_interval(key, data)
    found |= _bias_and_dispersion(ends, n_members, n)
    distances = np.abs(2 * np.asarray(pits)[:n] - 1)
    for share in _COVERAGES:
        covered = np.where(np.isnan(distances), np.nan, distances <= share)
        found[coverage_name(share)] = Measure(covered, expected=(share, share), is_share=True)
    return found


def rank_measures(key: jax.Array, data: Data) -> dict[str, Measure]:
    """The bias of an ensemble, and the dispersion of the ranks of its targets."""
    n = data.n_kept()
    ends = pit_and_interval(key, data)[1]
    return _bias_and_dispersion(ends, numbers_of_members(data.predictions, n), n)


def _bias_and_dispersion(
    ends: PITInterval, n_members: np.ndarray | None, n: int
) -> dict[str, Measure]:
    """1 - F(y) - F(y-), and for ensembles the dispersion of U, anywhere between its ends."""
    low, high = (np.asarray(x, np.float64)[:n] for x in ends)
    bias, found = 1 - low - high, {}
    if n_members is not None:
        # The ends are r / (S + 1) for ranks r, and the cdf is that of S members.
        bias = bias * (n_members + 1) / n_members
        of_ranks = np.stack([(low + high) / 2, (low**2 + low * high + high**2) / 3], axis=1)
        found["rank dispersion"] = Measure(of_ranks, _dispersion, NONNEGATIVE, (1.0, 1.0))
    return {"bias": Measure(bias, None, (-1.0, 1.0), (0.0, 0.0))} | found


def _dispersion(means: np.ndarray) -> np.ndarray:
    """1 / sqrt(a b) for the beta distribution of U with the means of U and U^2.

    It is 1 for a uniform U, and nearly 1 for U = Phi(z + d) of normal z, whatever the shift d.  1
    minus it is the score of Keller and Hense (Meteorologische Zeitschrift 2011).
    """
    mean, square = means[..., 0], means[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        size = (mean - square) / (square - mean**2)
        return 1 / (size * np.sqrt(mean * (1 - mean)))


def numbers_of_members(predictions: Distribution, n: int) -> np.ndarray | None:
    """The number of members of each row, ``[n]``; None but for ensembles without weights."""
    if not isinstance(predictions, Empirical) or predictions.weights is not None:
        return None
    if predictions.where is None:
        return np.full(n, predictions.samples.shape[1])
    return np.asarray(predictions.where)[:n].sum(axis=1)


def expected_squares(variances: np.ndarray, n_members: np.ndarray) -> np.ndarray:
    """The expected squared errors of means of members with these variances, ``[n]``.

    The variance v of S draws from a distribution with the variance s^2 is s^2 (1 - 1/S) on average,
    and the squared error of their mean s^2 (1 + 1/S), which is that of v (S + 1) / (S - 1).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return variances * np.divide(n_members + 1, n_members - 1)


def _error_over_variance(
    squares: np.ndarray, variances: np.ndarray, n_members: np.ndarray | None
) -> Measure:
    """A number that is 1 on average if the squared errors are as predicted.

    The mean of the ratios of S draws is larger than that of the distributions, as a small variance
    is in the denominator; so the mean of the squares is divided by that of `expected_squares`.
    """
    kind: Any = {"possible": NONNEGATIVE, "expected": (1.0, 1.0)}
    with np.errstate(divide="ignore", invalid="ignore"):
        if n_members is None:
            return Measure(squares / variances, **kind)
        expected = expected_squares(variances, n_members)
    return Measure(np.stack([squares, expected], axis=1), ratio_of_means, **kind)


@functools.partial(quick_jit, light=True)
def moments(predictions: Distribution) -> tuple[jax.Array, jax.Array]:
    """Means and standard deviations."""
    return predictions.mean(), predictions.standard_deviation()
