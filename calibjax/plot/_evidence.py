"""Plots of evidence: of a test, of segments of rows, and of a monitor."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from calibjax._base.text import p_in_words
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.plot import _style as style
from calibjax.segments import SegmentTestResult


def null_distribution(result: CalibrationTestResult, *, ax: Axes | None = None) -> Axes:
    """Draws the statistic of a test among its draws for a calibrated model.

    Args:
        result: the result of a test that draws, such as `calibration_test`.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is not an Axes.
        ValueError: the test has no draws.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Bernoulli(jnp.full(100, 0.9))
        >>> result = cj.calibration_test(jax.random.key(1), predictions, jnp.arange(100) < 60)
        >>> cj.plot.null_distribution(result).get_xlabel()
        'test statistic'
    """
    if result.null_distribution is None:
        raise ValueError(f"result must have a null_distribution, got that of {result.method}.")
    draws, statistic = np.asarray(result.null_distribution), float(result.statistic)
    n_bins = int(np.clip(2 * np.sqrt(draws.size), 5, 40))
    ax = style.new_axes(ax)
    look: style.Look = {"facecolor": style.PALE, "edgecolor": style.GREY, "linewidth": style.THIN}
    shape: style.Look = {"bins": n_bins, "histtype": "stepfilled", "label": "calibrated model"}
    heights = ax.hist(draws, **shape, **look)[0]
    # There is room for the legend, of some 30 points, above the curve and the line.
    height = ax.get_position(original=True).height * ax.figure.bbox.height * 72 / ax.figure.dpi
    share = float(np.clip(40 / height, 0.25, 0.5))
    ax.set_ylim(0.0, np.max(heights) / (1 - share))
    found = p_in_words(float(result.pvalue), draws.size)
    ax.axvline(statistic, ymax=1 - share, **style.ALARM, label=f"your model, {found}")
    style.labels(
        ax, "Your model among calibrated ones", "test statistic", f"number of {draws.size} draws"
    )
    style.legend(ax, loc="best")
    return ax


def e_process(
    log_e_values: ArrayLike,
    *,
    ax: Axes | None = None,
    level: float = 0.05,
    names: Sequence[str] | None = None,
    alarm: int | None = None,
    onset: int | None = None,
) -> Axes:
    """Draws the e-value after each update on a log axis, with the line 1 / level.

    A calibrated model ever crosses the line with a probability of at most `level`, whenever one
    looks.  The first crossing is marked, or the update in which the alarm rang.

    Args:
        log_e_values: the natural logarithm of the e-value after each update, ``[t]``, such as
            ``monitor.log_e_value`` after each ``monitor.update``.
        ax: axes of matplotlib to draw into; by default those of a new figure.
        level: the probability of a false alarm, a number in (0, 1).
        names: the names of the updates on the axis, such as their dates, ``[t]``; None stands for
            their numbers from 1.
        alarm: the number of the update in which the alarm rang, from 1; None stands for the first
            one whose e-value reaches the line.
        onset: the number of the update with the estimated onset, `change_point` of the monitor,
            from 1; None leaves it out.

    Returns:
        The axes; their figure is ``ax.figure``.  The axis is of powers of 10, log e / log 10, which
        does not overflow.

    Raises:
        TypeError, ValueError: an argument of another type, shape or value.

    Example:
        >>> import numpy as np
        >>> from calibjax import plot
        >>> ax = plot.e_process(np.log([1.1, 0.9, 5.0, 30.0]))
        >>> ax.get_xlabel()
        'updates'
    """
    log_e = np.asarray(log_e_values, float)
    if log_e.ndim != 1 or not log_e.size:
        raise ValueError(f"log_e_values must have shape [t], t >= 1, got {list(log_e.shape)}.")
    if np.isnan(log_e).any():
        row = int(np.isnan(log_e).argmax())
        raise ValueError(f"log_e_values must be logarithms; the value {row} is nan.")
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}.")
    if names is not None and len(names) != log_e.size:
        raise ValueError(f"names must be {log_e.size} names of updates, got {len(names)}.")
    for name, update in (("alarm", alarm), ("onset", onset)):
        if update is not None and not 1 <= update <= log_e.size:
            raise ValueError(f"{name} must be from 1 to {log_e.size}, got {update}.")
    ax = style.new_axes(ax)
    # Before the first update the e-value is 1.
    powers = np.r_[0.0, log_e] / np.log(10)
    line = -np.log10(level)
    ax.plot(powers, **style.CURVE)
    ax.axhline(0.0, **style.IDEAL)
    ax.axhline(
        line, color=style.VERMILLION, linewidth=style.THIN, label=f"alarm line, 1 / {level:.3g}"
    )
    if onset is not None:
        since = f"estimated onset {_name_of(onset, names)}"
        ax.axvline(onset, color=style.GREY, linewidth=style.THIN, linestyle="--", label=since)
    over = [alarm] if alarm is not None else np.flatnonzero(powers >= line).tolist()
    if over:
        first = over[0]
        look: style.Look = {"color": style.VERMILLION, "markersize": 4, "zorder": 4}
        label = f"alarm at {_name_of(first, names)}"
        ax.plot([first], powers[[first]], "o", clip_on=False, label=label, **look)
    ax.set_xlim(0, log_e.size)
    # Names, such as dates, are long.
    ax.xaxis.set_major_locator(MaxNLocator(6 if names is None else 4, integer=True))
    if names is not None:
        ax.xaxis.set_major_formatter(lambda x, _: names[int(x) - 1] if 1 <= x <= log_e.size else "")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")
    style.labels(ax, "Evidence against calibration", "updates", "e-value")
    style.legend(ax, loc="best")
    return ax


def _name_of(update: int, names: Sequence[str] | None) -> str:
    return f"{update:,}" if names is None else names[update - 1]


# Intervals and bars hold with 95 %; a p-value of single precision may be an ulp above 0.05.
_LEVEL = 0.05 * (1 + 1e-6)
# More segments are not readable at half a page.
_MOST = 12
# Longer names have several lines, so that half of the plot is left for intervals.
_WIDTH = 26
# What is shown of each statistic of segments.
_UNITS = {
    "rate": "observed rate",
    "calibration slope": "calibration slope",
    "location": "targets minus predictions (predicted SDs)",
    "spread": "observed spread / predicted spread",
    "coverage": "coverage of central intervals",
    "top label": "accuracy",
}


def segments(
    result: SegmentTestResult, *, statistic: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draws for whom a model is wrong: one statistic of the clearest segments, below all rows.

    A point is what was observed, with its interval; the grey bar is where it would lie if the model
    were calibrated, and the tick in it is what was predicted.  Intervals and bars hold for all
    segments and statistics at once, with 95 %.  Significant segments are red.

    Args:
        result: what `segment_test` returned, or `segments` of an evaluation.
        statistic: one of ``result.names.statistics``; None for that of the clearest segment.
        ax: where to draw, or None for a new figure.

    Returns:
        The axes; ``ax.figure.savefig(path)`` saves them.

    Raises:
        TypeError: ax is not an Axes.
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
    size = width, height * (0.5 + 0.07 * len(lines) * max(1, 0.7 * n_of_text))
    ax = style.new_axes(ax, size, None)
    rows = np.arange(len(lines))
    low, high = np.array([x.expected for x in lines]).T
    ax.barh(rows, high - low, 0.7, low, color=style.PALE, label="range if calibrated", zorder=1)
    predicted = [x.predicted for x in lines]
    ax.plot(predicted, rows, "|", color=style.GREY, markersize=8, label="predicted", zorder=2)
    is_significant = np.array([x.pvalue <= _LEVEL for x in lines])
    observed = np.array([x.observed for x in lines])
    ends = np.array([x.interval for x in lines]).T + np.array(predicted)
    arms = np.abs(ends - observed)
    # An interval without an end goes as far as the longest one that has both.
    arms = np.where(np.isfinite(arms), arms, np.max(arms, initial=0, where=np.isfinite(arms)))
    look: style.Look = {"fmt": "o", "markersize": 3.5, "linewidth": style.THIN, "zorder": 3}
    inside = style.BLUE, "observed"
    for some, color, label in style.by_color(is_significant, "significant", inside):
        x, y, error = observed[some], rows[some], arms[:, some]
        ax.errorbar(x, y, xerr=error, color=color, label=label, **look)
    ax.set_yticks(rows, names, parse_math=False)
    ax.tick_params(axis="y", length=0, labelsize=style.NOTE)
    is_chance = float(np.asarray(result.pvalue)) > _LEVEL
    title = "No significant segment" if is_chance else "Errors by segment"
    style.labels(ax, title, _UNITS.get(str(statistic), f"{statistic}"), "")
    ax.use_sticky_edges = False
    style.legend_below(ax)
    return ax
