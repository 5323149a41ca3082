"""Numbers of an evaluation: means and shares of rows, with their intervals, and log scores."""

import dataclasses
import math
from typing import Any

import numpy as np

from calibjax._data import Data
from calibjax.evaluation._wording import named_rows
from calibjax.expectations import has_log_prob
from calibjax.intervals import Interval, Sampling, mean_interval, wilson_interval
from calibjax.scores import log_score


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number that says how good predictions are.

    Args:
        value: the number.
        interval: a confidence interval for it, from the rows; or None.
        if_calibrated: where it would lie, with the same probability, if targets were drawn from the
            predictions, or twice its mean; or None.
        pvalue: for a measure of calibration, how often such targets show at least as much; or None.
        note: words instead of all but the value, such as which rows have no number; or None.
    """

    value: float
    interval: Interval | None = None
    if_calibrated: Interval | None = None
    pvalue: float | None = None
    note: str | None = None


def share_measure(
    hits: np.ndarray, probability: float, confidence_level: float, sampling: Sampling
) -> Measure:
    """The share of hits, and where it lies if each row hits with a probability.

    Of rows with weights, or that depend on each other, only the mean is known.
    """
    from scipy.special import bdtr

    interval = wilson_interval(hits, confidence_level, sampling)
    if not sampling.is_plain:
        return Measure(float(sampling.shares() @ hits), interval, (probability, probability))
    tail, n = (1 - confidence_level) / 2, len(hits)
    binomial_cdf = bdtr(np.arange(n + 1), n, probability)
    low, high = np.searchsorted(binomial_cdf, [tail, 1 - tail]) / n
    return Measure(float(hits.mean()), interval, (float(low), float(high)))


def mean_measure(
    values: Any,
    confidence_level: float,
    sampling: Sampling,
    least: float,
    if_calibrated: float | None = None,
    most: float = math.inf,
    *,
    row_names: np.ndarray,
) -> Measure:
    """The mean of scores that are at least `least` and at most `most`."""
    values = np.asarray(values, np.float64)
    unknown = unknown_rows(values, row_names)
    if unknown is not None:
        return unknown
    expected = None if if_calibrated is None else (if_calibrated, if_calibrated)
    interval = mean_interval(values, confidence_level, (least, most), sampling)
    return Measure(float(sampling.shares() @ values), interval, expected)


def unknown_rows(values: np.ndarray, row_names: np.ndarray) -> Measure | None:
    """No number, if a row is NaN: what is computed has no digits left there."""
    rows = np.flatnonzero(np.isnan(values))
    note = f"NaN in {named_rows(row_names[rows])}"
    return Measure(math.nan, note=note) if len(rows) else None


def log_scores(data: Data) -> np.ndarray | None:
    """The log scores of the n kept rows, which come first, ``[n]``; None without a density."""
    if not has_log_prob(data.predictions):
        return None
    return np.asarray(log_score(data))[: data.n_kept()]
