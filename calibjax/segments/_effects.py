r"""How large an error is, in words and units that people read, with ranges for it.

Scores between -c and c are chance in all segments at once.  They belong to sums between z_- and z_+
in units of the model's deviation d.  With the sum S of a segment, its weight W and its information
I = sum w E r^2, the error and its interval are

- of a frequency with the mean prediction p: observed o = p + S / W.  The interval holds the q with
  z_- <= (o - q) / (k sqrt(q (1 - q))) <= z_+, where k sqrt(p (1 - p)) = d / W, as that of Wilson;
- of a slope, or a location: S / I, with the interval (S - z d) / I;
- of the spread: the ratio t of what is observed to what is predicted, t^2 = 1 + sqrt(2) S / I.  The
  interval holds the t with z_- d / I <= (t_observed^2 / t^2 - 1) / sqrt(2) <= z_+ d / I.

S / I is one step of Newton to the most likely slope, location or log of the spread.  Each interval
holds what is predicted if and only if the score is between -c and c.

Of ensembles and quantiles S / I of location and spread is between z d / I, and `_coarse_sizes.py`
brings all of these to units of the forecast.

For this the intervals of slopes and locations take the deviation d that the model says.  Where the
spread of the segment is wrong as well, they are too narrow or too wide by this factor, and hold the
true value less or more often than they promise.

Reference: Wilson, Probable inference, the law of succession, and statistical inference, Journal of
the American Statistical Association 1927.
"""

from typing import NamedTuple

import numpy as np

from calibjax.segments._coarse_sizes import Pieces, in_units_of_forecast
from calibjax.segments._maxima import SegmentSums
from calibjax.segments._scores import sums_at

# Factors of logits between this one and its inverse are stated.
_LEAST_FACTOR = 0.75


class Effects(NamedTuple):
    """What was observed of some statistics, and ranges, arrays of one shape.

    Args:
        observed: in the units of `predicted`.
        predicted: what a calibrated model has on average.
        low, high: the interval of the true value.
        expected_low, expected_high: the range of `observed` if the model is calibrated.
    """

    observed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected_low: np.ndarray
    expected_high: np.ndarray


def effects_of(
    statistic: str, sums: SegmentSums, j: int, critical: float, pieces: Pieces | None = None
) -> Effects:
    """The effects of statistic j in all segments; `critical` is c.

    Of ensembles and quantiles, whose PITs are known in pieces, sizes become those of the forecast.
    """
    total = np.asarray(sums.total, np.float64)
    observed_sums, variance, skewness, information, p = (
        np.asarray(x[:, j], np.float64)
        for x in (sums.sums, sums.variance, sums.skewness, sums.information, sums.predicted)
    )
    deviation = np.sqrt(variance)
    least, most = (sums_at(c, skewness) * deviation for c in (-critical, critical))
    if pieces is not None and statistic in ("spread", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        steps = step, step - most, step - least, least, most
        observed, *ends = (in_units_of_forecast(statistic, x, pieces) for x in steps)
        return Effects(observed, p, *ends)
    if statistic == "spread":
        square, least, most = (
            np.maximum(1 + np.sqrt(2) * s / information, 0.0) for s in (observed_sums, least, most)
        )
        low, high = (np.sqrt(square / np.where(s > 0, s, np.nan)) for s in (most, least))
        high = np.where(least > 0, high, np.inf)
        return Effects(np.sqrt(square), p, low, high, np.sqrt(least), np.sqrt(most))
    if statistic in ("sureness", "location"):
        step, least, most = (s / information for s in (observed_sums, least, most))
        observed = p + step
        return Effects(observed, p, observed - most, observed - least, p + least, p + most)
    observed = np.clip(p + observed_sums / total, 0.0, 1.0)
    of_variance = p * (1 - p)
    low, high = (
        _end(observed, np.square(s / total) / np.where(of_variance > 0, of_variance, np.nan), sign)
        for s, sign in ((most, -1), (least, 1))
    )
    expected = (np.clip(p + s / total, 0.0, 1.0) for s in (least, most))
    return Effects(observed, p, low, high, *expected)


def _end(observed: np.ndarray, a: np.ndarray, sign: int) -> np.ndarray:
    """The root q of (o - q)^2 = a q (1 - q) below or above o."""
    root = np.sqrt(a * (a + 4 * observed * (1 - observed)))
    return np.clip((2 * observed + a + sign * root) / (2 * (1 + a)), 0.0, 1.0)


def in_words(statistic: str, observed: float, predicted: float) -> str:
    """The error as part of a sentence."""
    if statistic == "sureness":
        # Farther from 1 a step of Newton goes too far, or not far enough.
        if not _LEAST_FACTOR <= observed <= 1 / _LEAST_FACTOR:
            return "much too sure" if observed < 1 else "far from sure enough"
        words = "too sure" if observed < 1 else "not sure enough"
        return f"{words}, logits should be about {observed:.2g} times as large"
    if statistic == "location":
        words = "higher" if observed > 0 else "lower"
        return f"targets {abs(observed):.2g} predicted deviations {words}"
    if statistic == "spread":
        if observed <= 0:
            return "predicted spread much too large"
        change, words = (1 - 1 / observed, "small") if observed > 1 else (1 / observed - 1, "large")
        return f"predicted spread {100 * change:.0f} % too {words}"
    if statistic == "coverage":
        return f"{100 * predicted:.0f} % intervals hold {100 * observed:.0f} %"
    name = "accuracy" if statistic == "top label" else statistic
    return f"{name} {_share(observed)}, predicted {_share(predicted)}"


def _share(x: float) -> str:
    """A frequency; rounding leaves a little of 0."""
    return f"{round(x, 5):.3g}"
