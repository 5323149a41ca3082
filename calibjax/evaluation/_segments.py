"""For whom a model is wrong: segments of an evaluation, and what a verdict says of them.

Calibration within a group is what is tested: whether its targets follow its predictions.  That two
groups differ, or that a model is fair to them, is another question, and no words here answer it.
"""

from collections.abc import Sequence

import jax
import numpy as np

from calibjax._rows import Data
from calibjax.segments import Groups, Segment, SegmentTestResult, segment_test_of_data

# How many columns make a segment.
_ORDER = 2


def segments_of_groups(
    key: jax.Array, data: Data, groups: Groups | None, n_resamples: int
) -> SegmentTestResult | None:
    """The test of all segments of checked data; None without groups."""
    if groups is None:
        return None
    return segment_test_of_data(key, data, groups, order=_ORDER, n_resamples=n_resamples)


def columns_of_segments(
    result: SegmentTestResult | None, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The levels of columns that were tested, in words ``[n]``; None for rows that do not count.

    Raises:
        ValueError: a name is none of these.
    """
    levels = {} if result is None else dict(result.names.levels)
    unknown = [name for name in names if name not in levels]
    if result is None or unknown:
        raise ValueError(
            f"groups must be columns, or names among the groups of evaluate, {list(levels)}, got "
            f"{list(names)}."
        )
    codes, places = np.asarray(result.codes), list(levels)
    return {
        name: np.array([*levels[name], None], object)[codes[:, places.index(name)]]
        for name in names
    }


def worst_segment(result: SegmentTestResult, level: float) -> Segment | None:
    """The clearest segment whose error is not that of all rows; None if none is beyond chance.

    A model that is wrong on the whole is wrong in many segments, too.  One of these stands out if
    its simultaneous interval does not hold what is observed of all rows.
    """
    of_all = {x.statistic: x.value for x in result.segments if not x.conditions}
    for segment in result.rejected(level):
        low, high = segment.interval
        of_whole = of_all.get(segment.statistic, 0.0)
        if segment.conditions and not low <= of_whole <= high:
            return segment
    return None


def segments_in_words(result: SegmentTestResult | None, level: float) -> str | None:
    """The worst segment in words, for a verdict; None if none stands out."""
    segment = None if result is None else worst_segment(result, level)
    if result is None or segment is None:
        return None
    return f"wrong most clearly for {segment}, after {result.n_segments} segments"
