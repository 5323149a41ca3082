"""Measures of quantile forecasts: scores, bias, and coverage of levels and intervals."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calibjax._data.data import Data
from calibjax.distributions import Quantiles
from calibjax.measures.measure import Measure, NumberOfRows
from calibjax.measures.sampling import Interval
from calibjax.scores import crps

NONNEGATIVE = (0.0, math.inf)
#: The name of the weighted interval score.
WIS = "weighted interval score"
# Maximum number of levels that all have a share, and the levels that have one if there are more.
_MOST_LEVELS, _USUAL_LEVELS = 9, np.array([0.05, 0.25, 0.5, 0.75, 0.95])
# Maximum number of coverages that are all printed, and those that are printed of more.
_MOST_COVERAGES, _COVERAGE = 4, re.compile(r"coverage of (.*) % intervals")
_USUAL_COVERAGES = ("50", "80", "90", "95")


def coverage_name(coverage: float) -> str:
    """The name of the measure of central intervals of a probability."""
    return f"coverage of {100 * coverage:.4g} % intervals"


def coverages_not_printed(names: Iterable[str]) -> list[str]:
    """The coverages that a table for display leaves out: of many all but those in use."""
    found = [name for name in names if _COVERAGE.fullmatch(name)]
    usual = map("coverage of {} % intervals".format, _USUAL_COVERAGES)
    return [] if len(found) <= _MOST_COVERAGES else [*set(found).difference(usual)]


def quantile_measures(data: Data) -> dict[str, NumberOfRows]:
    """Scores, bias, coverage for each symmetric pair of levels, and the share below each level.

    The weighted interval score and its parts need levels that all come in pairs u, 1 - u, with or
    without the median; it is then twice the pinball loss.  Where targets are equal to quantiles,
    the share below may be smaller than the level, and the share up to the quantile, or in an
    interval, may be larger.
    """
    kept = slice(data.n_kept())
    levels, below, up_to = shares_of_levels(*data.samples)
    below, up_to, (predictions, targets) = below[kept], up_to[kept], data.samples
    values, targets = (np.asarray(x, np.float64)[kept] for x in (predictions.values, targets))
    errors, is_hit = targets[:, None] - values, np.any(below != up_to, axis=0)
    pinball = pinball_losses(*data.samples)[kept]
    columns: dict[str, Any] = {}
    if are_in_pairs(levels):
        columns[WIS] = 2 * pinball
        columns |= _parts_of_score(levels, values, errors)
    columns |= {"pinball loss": pinball, "CRPS": crps(data)}
    found: dict[str, NumberOfRows] = {
        name: Measure(x, possible=NONNEGATIVE) for name, x in columns.items()
    }
    if levels[0] <= 0.5 <= levels[-1]:
        expected = None if is_hit.any() else _mean_bias(levels)
        bias = _bias(levels, values, targets)
        found["bias"] = Measure(bias, possible=(-1.0, 1.0), expected=expected)
    for low in range(np.searchsorted(levels, 0.5)):
        for high in np.flatnonzero(np.isclose(levels, 1 - levels[low])):
            coverage, covered = levels[high] - levels[low], up_to[:, high] & ~below[:, low]
            ends: Interval = coverage, 1.0 if is_hit[low] or is_hit[high] else coverage
            found[coverage_name(coverage)] = Measure(covered, expected=ends, is_share=True)
    shown = np.arange(levels.size)
    if levels.size > _MOST_LEVELS:
        shown = np.unique(np.abs(levels[:, None] - _USUAL_LEVELS).argmin(axis=0))
    for k in shown:
        level, name = float(levels[k]), f"{levels[k]:.4g} quantile"
        ends = 0.0 if is_hit[k] else level, level
        found[f"observed below {name}"] = Measure(below[:, k], expected=ends, is_share=True)
        if is_hit[k]:
            found[f"observed up to {name}"] = Measure(
                up_to[:, k], expected=(level, 1.0), is_share=True
            )
    return found


def are_in_pairs(levels: Sequence[float] | np.ndarray) -> bool:
    """Whether there is 1 - u for every level u, which a weighted interval score needs."""
    return np.allclose(np.add(levels, levels[::-1]), 1)


def pinball_losses(predictions: Quantiles, targets: Any) -> np.ndarray:
    """The mean over the levels u of max(u (y - q_u), (u - 1) (y - q_u)), ``[n]``."""
    values, targets = (np.asarray(x, np.float64) for x in (predictions.values, targets))
    levels, errors = np.asarray(predictions.levels), targets[:, None] - values
    return np.maximum(levels * errors, (levels - 1) * errors).mean(axis=1)


def _parts_of_score(
    levels: np.ndarray, values: np.ndarray, errors: np.ndarray
) -> dict[str, np.ndarray]:
    """The parts of the weighted interval score of K levels, each ``[n]``, whose sum is the score.

    An interval from l to u at the levels a/2 and 1 - a/2 adds a/2 (u - l), (l - y)+ and (y - u)+,
    and the median half of its two errors; all of them times 2 / K (Bracher et al. 2021).
    """
    half = -(-levels.size // 2)
    weights = np.where(np.isclose(levels[:half], 0.5), 0.5, 1.0) * 2 / levels.size
    widths = (values[:, ::-1] - values)[:, :half]
    return {
        "dispersion": widths @ (weights * levels[:half]),
        "overprediction": np.maximum(-errors[:, :half], 0) @ weights,
        "underprediction": np.maximum(errors[:, ::-1][:, :half], 0) @ weights,
    }


def _bias(levels: np.ndarray, values: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """1 - 2 u, for the level u next to the target on the far side of the median, ``[n]``.

    Below the median it is the highest level with q_u <= y, above it the lowest one with q_u >= y;
    0 and 1 are also levels.  It is 0 at the median, which is interpolated if it is not given
    (scoringutils, Bosse et al. 2022).
    """
    k = max(int(np.searchsorted(levels, 0.5)), 1)
    share = (0.5 - levels[k - 1]) / (levels[k] - levels[k - 1])
    median = values[:, k - 1] + share * (values[:, k] - values[:, k - 1])
    ends, y = np.array([0.0, *levels, 1.0]), targets[:, None]
    lower, upper = ends[(values <= y).sum(axis=1)], ends[(values < y).sum(axis=1) + 1]
    bias = 1 - 2 * np.where(targets < median, lower, upper)
    return np.where(targets == median, 0.0, bias)


def _mean_bias(levels: np.ndarray) -> Interval | None:
    """The mean bias of a calibrated model without ties, twice; None if the median is not given."""
    if not np.isclose(levels, 0.5).any():
        return None
    ends = np.array([0.0, *levels, 1.0])
    outer = np.where(ends[1:] < 0.5 + 1e-6, ends[:-1], ends[1:])
    mean = round(float(np.diff(ends) @ (1 - 2 * outer)), 6)
    return mean, mean


def shares_of_levels(predictions: Quantiles, targets: Any) -> tuple[np.ndarray, ...]:
    """The K levels, and whether each target is below the quantile of each, or at most that.

    The shapes are ``[K]``, ``[n, K]`` and ``[n, K]``.
    """
    levels, values = np.asarray(predictions.levels), np.asarray(predictions.values)
    targets = np.asarray(targets)[:, None]
    return levels, targets < values, targets <= values
