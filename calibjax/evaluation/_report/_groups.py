"""Reliability or PIT pictures of named groups, with bands that hold for all of them at once."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibjax import curves, plot
from calibjax._between import Between
from calibjax._rows import Data, as_data, padded, with_dependence
from calibjax.evaluation._keys import keys_of
from calibjax.evaluation._label_statistics import judged
from calibjax.evaluation._segments import worst_segment
from calibjax.segments import Segment, SegmentTestResult

# The groups of one column; more pictures are not compared by eye.
_MOST = 6


def pictures_of_groups(evaluation: Any) -> list[tuple[Segment, Figure]]:
    """A picture for each level of the column of the worst segment, or of the first column.

    They run the programs of the pictures of all rows.  Bands hold for all of them at once, by
    Bonferroni, and axes are the same.
    """
    predictions, result = evaluation.predictions, evaluation.segments
    if result is None or isinstance(evaluation.targets, Between):
        return []
    groups = _groups_of_a_column(result, evaluation.level)
    if not groups:
        return []
    data = as_data(predictions, evaluation.targets, weights=evaluation.weights)
    data = padded(with_dependence(data, evaluation.dependence))
    drawn = [(group, _drawn(evaluation, data, result.rows(group), len(groups))) for group in groups]
    top = max(ax.get_ylim()[1] for _, ax in drawn)
    for group, ax in drawn:
        ax.set_title(f"{group.name}, n = {group.n:,}", fontsize=9, loc="left", parse_math=False)
        ax.set_ylim(0.0, top)
    return [(group, _figure_of(ax)) for group, ax in drawn]


def _figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def _groups_of_a_column(result: SegmentTestResult, level: float) -> list[Segment]:
    """The levels of one column that are tested, the clearest ones first."""
    single = [x for x in result.segments if len(x.conditions) == 1]
    if not single:
        return []
    worst = worst_segment(result, level) or single[0]
    (column, *_) = worst.conditions
    levels: dict[str, Segment] = {}
    for segment in single:
        if column in segment.conditions:
            levels.setdefault(segment.name, segment)
    return list(levels.values())[:_MOST]


def _drawn(evaluation: Any, data: Data, rows: np.ndarray, n_groups: int) -> Axes:
    is_member = np.zeros(data.n, bool)
    is_member[rows] = True
    n_resamples = len(evaluation.test.null_distribution)
    level = min(1 - evaluation.level / n_groups, n_resamples / (n_resamples + 1))
    options: dict[str, Any] = {"confidence_level": level, "n_resamples": n_resamples}
    key = keys_of(evaluation.seed).curves
    if data.predictions.has_labels:
        of_group = judged(data).replace(where=is_member)
        curve = curves.reliability_curve_of_data(key, of_group, n_bins=15, **options)
        ax = plot.reliability(curve)
        # Behind the picture, the numbers of forecasts have the same axis.
        for axes in (ax, *ax.child_axes):
            axes.set_xlim(0.0, 1.0)
        return ax
    of_group = data.replace(where=is_member)
    return plot.pit(curves.pit_curve_of_data(key, of_group, n_bins=20, **options))
