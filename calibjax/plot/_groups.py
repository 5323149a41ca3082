"""Pictures of groups of rows: for whom, or at which values of a covariate, a model is wrong."""

import textwrap

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import CovariateCurve
from calibjax.plot import _style as style
from calibjax.segments import SegmentTestResult

# Intervals and bars hold with 95 %; a p-value of single precision may be an ulp above 0.05.
_LEVEL = 0.05 * (1 + 1e-6)
# More segments are not readable at half a page.
_MOST = 12
# Longer names have several lines, so that half of the picture is left for intervals.
_WIDTH = 26
# What is shown of each statistic of segments, and of a covariate, less what is predicted.
_UNITS = {
    "rate": "observed rate",
    "sureness": "factor that logits should have",
    "location": "targets above predictions (predicted deviations)",
    "spread": "observed spread / predicted spread",
    "coverage": "coverage of central intervals",
    "top label": "accuracy of the most probable class",
}
_DIFFERENCES = {
    "rate": "observed rate − predicted",
    "sureness": "factor that logits should have − 1",
    "location": "targets − predictions\n(predicted deviations)",
    "spread": "observed spread / predicted − 1",
    "coverage": "coverage of central intervals − predicted",
    "top label": "accuracy − predicted",
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
    _draw_observed(ax, rows, observed, ends, is_beyond, is_horizontal=True)
    ax.set_yticks(rows, names, parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=style.NOTE)
    is_chance = float(np.asarray(result.pvalue)) > _LEVEL
    title = "No segment is wrong beyond noise" if is_chance else "For whom the model is wrong"
    style.words(ax, title, _UNITS.get(str(statistic), f"{statistic}"), "")
    ax.use_sticky_edges = False
    style.legend_below(ax)
    return ax


def covariate(
    curve: CovariateCurve, *, statistic: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draws how far off a model is at which values of a covariate.

    A point is what was observed in a cell, less what was predicted, with its interval; the grey
    band is where points lie if the model is calibrated.  Both hold for all cells and statistics at
    once.  Points outside of the band are red, and the dashed line is where there is no error.

    Args:
        curve: what `covariate_curve` returned.
        statistic: one of ``curve.statistics``; None for the clearest.
        ax: where to draw, or None for a new figure.

    Returns:
        The axes; ``ax.figure.savefig(path)`` saves them.

    Raises:
        TypeError: ax is no Axes.
        ValueError: the curve has no such statistic, or no cell has enough rows for it.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> from calibjax import plot
        >>> predictions, age = cj.Bernoulli(np.full(300, 0.2)), np.linspace(20, 80, 300)
        >>> curve = cj.covariate_curve(jax.random.key(0), predictions, age > 68, {"age": age})
        >>> plot.covariate(curve).get_title(loc="left")
        'The error depends on age'
    """
    statistic = curve.clearest() if statistic is None else statistic
    if statistic not in curve.statistics:
        raise ValueError(
            f"statistic must be one of {', '.join(curve.statistics)}, got {statistic!r}."
        )
    j = curve.statistics.index(statistic)
    shown = np.flatnonzero(np.isfinite(curve.value[j]))
    if not shown.size:
        raise ValueError(f"curve must have a cell with enough rows for the {statistic}, got none.")
    width, height = style.SIZE
    ax = style.new_axes(ax, (width, 1.1 * height))
    x, value = curve.positions[shown], curve.value[j, shown]
    if curve.categories:
        half = np.array([-0.4, 0.4])
        for at, low, high in zip(x, curve.low[j, shown], curve.high[j, shown], strict=True):
            ax.fill_between(at + half, low, high, **style.BAND)
    else:
        ax.fill_between(x, curve.low[j, shown], curve.high[j, shown], **style.BAND)
    ax.plot([], [], color=style.PALE, linewidth=6, label="if calibrated")
    ax.axhline(0.0, **style.IDEAL)
    ends = np.stack([curve.interval_low[j, shown], curve.interval_high[j, shown]])
    is_beyond = curve.significant[j, shown]
    _draw_observed(ax, x, value, ends, is_beyond)
    if curve.categories:
        names = [curve.categories[c] for c in shown]
        ax.set_xticks(x, names, parse_math=False, rotation=0 if len(names) <= 6 else 90)
    title = f"The error depends on {curve.name}" if is_beyond.any() else "No error beyond noise"
    unit = _DIFFERENCES.get(statistic, f"frequency of {statistic} − predicted")
    style.words(ax, title, curve.name, unit)
    style.legend_below(ax)
    return ax


def _draw_observed(
    ax: Axes,
    at: np.ndarray,
    value: np.ndarray,
    ends: np.ndarray,
    is_beyond: np.ndarray,
    is_horizontal: bool = False,
) -> None:
    """Points with their intervals; those that are beyond chance have another colour.

    Args:
        ax: where to draw.
        at: the coordinate of each group, ``[k]``.
        value: what was observed, ``[k]``.
        ends: the ends of its interval, ``[2, k]``.
        is_beyond: whether it is beyond chance, ``[k]``.
        is_horizontal: whether intervals lie along the horizontal axis.
    """
    arms = np.abs(ends - value)
    # An interval without an end goes as far as the longest one that has both.
    arms = np.where(np.isfinite(arms), arms, np.max(arms, initial=0, where=np.isfinite(arms)))
    look: style.Look = {"fmt": "o", "markersize": 3.5, "linewidth": style.THIN, "zorder": 3}
    for chosen, color, label in (
        (~is_beyond, style.BLUE, "observed"),
        (is_beyond, style.VERMILLION, "beyond chance"),
    ):
        if chosen.any():
            x, y, error = at[chosen], value[chosen], arms[:, chosen]
            if is_horizontal:
                ax.errorbar(y, x, xerr=error, color=color, label=label, **look)
            else:
                ax.errorbar(x, y, yerr=error, color=color, label=label, **look)
