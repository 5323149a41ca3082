"""The picture of groups of rows: for whom a model is wrong."""

import textwrap

import numpy as np
from matplotlib.axes import Axes

from calibjax.plot import _style as style
from calibjax.segments import SegmentTestResult

# Intervals and bars hold with 95 %; a p-value of single precision may be an ulp above 0.05.
_LEVEL = 0.05 * (1 + 1e-6)
# More segments are not readable at half a page.
_MOST = 12
# Longer names have several lines, so that half of the picture is left for intervals.
_WIDTH = 26
# What is shown of each statistic of segments.
_UNITS = {
    "rate": "observed rate",
    "sureness": "factor that logits should have",
    "location": "targets above predictions (predicted deviations)",
    "spread": "observed spread / predicted spread",
    "coverage": "coverage of central intervals",
    "top label": "accuracy of the most probable class",
}


def segments(
    result: SegmentTestResult, *, statistic: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draws for whom a model is wrong: one statistic of the clearest segments, below all rows.

    A point is what was observed, with its interval; the grey bar is where it would lie if the model
    were calibrated, and the tick in it is what was predicted.  Intervals and bars hold for all
    segments and statistics at once, with 95 %.  Segments beyond chance are red.

    Args:
        result: what `segment_test` returned, or `segments` of an evaluation.
        statistic: one of ``result.names.statistics``; None for that of the clearest segment.
        ax: where to draw, or None for a new figure.

    Returns:
        The axes; ``ax.figure.savefig(path)`` saves them.

    Raises:
        TypeError: ax is no Axes.
        ValueError: no segment has this statistic.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> from calibjax import plot
        >>> predictions, night = cj.Bernoulli(np.full(200, 0.5)), np.arange(200) % 2 == 0
        >>> result = cj.segment_test(jax.random.key(0), predictions, night, {"night": night})
        >>> [label.get_text() for label in plot.segments(result).get_yticklabels()]
        ['night (100)', 'not night (100)', 'all rows (200)']
    """
    found = result.segments
    if statistic is None and found:
        statistic = next((x for x in found if x.conditions), found[0]).statistic
    shown = [x for x in found if x.statistic == statistic]
    if not shown:
        raise ValueError(
            f"statistic must be one that a segment has, of {', '.join(result.names.statistics)}, "
            f"got {statistic!r}."
        )
    of_all = [x for x in shown if not x.conditions]
    by_score = sorted((x for x in shown if x.conditions), key=lambda x: -abs(x.score))
    lines = [*of_all, *by_score[: _MOST - 1]][::-1]
    names = [textwrap.fill(f"{x.name} ({x.n})", _WIDTH) for x in lines]
    n_of_text = 1 + max(name.count("\n") for name in names)
    width, height = style.SIZE
    ax = style.new_axes(ax, (width, height * (0.5 + 0.07 * len(lines) * max(1, 0.7 * n_of_text))))
    rows = np.arange(len(lines))
    low, high = np.array([x.expected for x in lines]).T
    ax.barh(rows, high - low, 0.7, low, color=style.PALE, label="if calibrated", zorder=1)
    predicted = [x.predicted for x in lines]
    ax.plot(predicted, rows, "|", color=style.GREY, markersize=8, label="predicted", zorder=2)
    is_beyond = np.array([x.pvalue <= _LEVEL for x in lines])
    observed = np.array([x.observed for x in lines])
    ends = np.array([x.interval for x in lines]).T + np.array(predicted)
    arms = np.abs(ends - observed)
    # An interval without an end goes as far as the longest one that has both.
    arms = np.where(np.isfinite(arms), arms, np.max(arms, initial=0, where=np.isfinite(arms)))
    look: style.Look = {"fmt": "o", "markersize": 3.5, "linewidth": style.THIN, "zorder": 3}
    for chosen, color, label in (
        (~is_beyond, style.BLUE, "observed"),
        (is_beyond, style.VERMILLION, "beyond chance"),
    ):
        if chosen.any():
            x, y, error = observed[chosen], rows[chosen], arms[:, chosen]
            ax.errorbar(x, y, xerr=error, color=color, label=label, **look)
    ax.set_yticks(rows, names, parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=style.NOTE)
    is_chance = float(np.asarray(result.pvalue)) > _LEVEL
    title = "No segment is wrong beyond noise" if is_chance else "For whom the model is wrong"
    style.words(ax, title, _UNITS.get(str(statistic), f"{statistic}"), "")
    ax.use_sticky_edges = False
    style.legend_below(ax)
    return ax
