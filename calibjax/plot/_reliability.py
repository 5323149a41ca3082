"""Plots of how often events happen, or happen by a time, against what is predicted."""

import functools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from calibjax.curves import CalibrationCurve, CORPCurve, ReliabilityCurve, RiskCurve
from calibjax.measures.events import RARE
from calibjax.plot import _style as style

# The band of each bin or forecast alone, within the wider one of all.
_DARKER = "#B3B3B3"
# The number of bars for forecasts that are not binned.
_BARS = 20
# The numbers of forecasts: the gap above them and their height, as parts of the axes.
_GAP, _HEIGHT = 0.07, 0.2
# Size of a figure of axes with others below them, in inches, and their place in it.
_SIZE = (3.3, 4.0)
_MARGINS = {"left": 0.18, "right": 0.96, "bottom": 0.02, "top": 0.93}
# Points: what the ticks and the name of the axis take below them, and a line of the legend.
_WORDS, _ENTRY = 25.0, 11.0
# The margin of logarithmic axes, as a factor.
_LOG_MARGIN = 1.1
# A legend of two columns fits below axes that are as wide as this many points.
_WIDE = 150.0


def reliability(curve: ReliabilityCurve | CORPCurve, *, ax: Axes | None = None) -> Axes:
    """Draws observed frequencies of events against their predicted probabilities.

    A calibrated model is near the diagonal: within the dark band at one forecast
    alone, and within the light band everywhere at once.  Points outside the light band are red.
    The numbers of forecasts stand below.  Both axes show the part of [0, 1] in which there are
    data.  If the median forecast of bins is below 0.05, they are logarithmic, and a frequency of 0
    is at their lower end.

    Args:
        curve: what `reliability_curve` or `corp_curve` returned.
        ax: where to draw, or None for a new figure.

    Returns:
        The axes; ``ax.figure.savefig(path)`` saves them.

    Raises:
        TypeError: another curve.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Bernoulli(jnp.linspace(0.0, 1.0, 400))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.reliability_curve(jax.random.key(1), predictions, targets, n_bins=5)
        >>> ax = plot.reliability(curve)
        >>> ax.get_title("left")
        'Reliability, n = 400'
    """
    if not isinstance(curve, (ReliabilityCurve, CORPCurve)):
        raise TypeError(
            "curve must be what reliability_curve or corp_curve returned, got "
            f"{type(curve).__name__}."
        )
    ax = style.new_axes(ax, _SIZE, _MARGINS)
    ax.plot([0, 1], [0, 1], label="calibrated", **style.IDEAL)
    if isinstance(curve, ReliabilityCurve):
        _draw_bins(curve, ax)
    else:
        _draw_isotonic(curve, ax)
    return ax


def calibration(curve: CalibrationCurve, *, ax: Axes | None = None) -> Axes:
    """Draws a smooth calibration curve with its bands, and a histogram of the predictions below.

    A calibrated model is near the diagonal.  Where the light band does not contain the diagonal,
    the curve is red.  Axes are logarithmic if events are rare.

    Args:
        curve: the result of `calibjax.calibration_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Bernoulli(jnp.linspace(0.1, 0.9, 400))
        >>> curve = cj.calibration_curve(predictions, predictions.sample(jax.random.key(0)))
        >>> plot.calibration(curve).get_title("left")
        'Calibration curve, n = 400'
    """
    style.check_type("curve", curve, CalibrationCurve)
    ax, p = style.new_axes(ax, _SIZE, _MARGINS), curve.predicted
    ax.plot([0, 1], [0, 1], label="calibrated", **style.IDEAL)
    _fill_bands(ax, p, curve)
    ax.plot(p, curve.frequency, label="smooth frequency", **style.CURVE)
    outside = (p < curve.simultaneous_low) | (p > curve.simultaneous_high)
    _draw_points(ax, p[outside], curve.frequency[outside], style.VERMILLION, ".", "significant")
    title = f"Calibration curve, n = {curve.count.sum():,}"
    style.labels(ax, title, "", "observed frequency")
    # Where axes are logarithmic, bands that go to 0 must not make them long.
    seen = curve.pointwise_low.clip(p[0]), curve.pointwise_high
    limits = _show(ax, p, curve.frequency, *seen, is_log=curve.is_rare)
    _draw_below(ax, limits, curve.edges, curve.count)
    return ax


def _draw_bins(curve: ReliabilityCurve, ax: Axes) -> None:
    edges, counts = np.asarray(curve.edges), np.asarray(curve.count)
    filled = counts > 0
    forecast, frequency = (np.asarray(x)[filled] for x in (curve.forecast, curve.frequency))
    low, high = (np.asarray(x)[filled] for x in (curve.simultaneous_low, curve.simultaneous_high))
    is_log = 0 < forecast[0] and np.median(np.repeat(forecast, counts[filled])) < RARE
    outside = (frequency < low) | (frequency > high)
    if is_log:
        edges, frequency = edges.clip(forecast[0] / 2), frequency.clip(forecast[0] / 2)
    left, width = edges[:-1][filled], np.diff(edges)[filled]
    for bottom, top, look in _bands(curve, ("all bins at once", "each bin")):
        ax.bar(left, (top - bottom)[filled], width, bottom[filled], align="edge", **look)
    ax.plot(forecast, frequency, **style.CURVE)
    _draw_points(ax, forecast[~outside], frequency[~outside], style.BLUE, "o", None)
    _draw_points(ax, forecast[outside], frequency[outside], style.VERMILLION, "D", "outside")
    style.labels(ax, f"Reliability, n = {counts.sum():,}", "", "observed frequency")
    limits = _show(ax, left, left + width, frequency, low.clip(left[0]), high, is_log=is_log)
    _draw_below(ax, limits, edges, counts)


def _draw_isotonic(curve: CORPCurve, ax: Axes) -> None:
    low, high = curve.simultaneous_low, curve.simultaneous_high
    if curve.grid.size:
        _fill_bands(ax, curve.grid, curve)
    ax.plot(curve.forecasts, curve.recalibrated, **style.CURVE)
    at_grid = curve.recalibrated[np.searchsorted(curve.forecasts, curve.grid)]
    outside = (at_grid < low) | (at_grid > high)
    _draw_points(ax, curve.grid[outside], at_grid[outside], style.VERMILLION, ".", "outside")
    style.labels(
        ax, f"Reliability without bins, n = {curve.count.sum():,}", "", "observed frequency"
    )
    limits = _show(ax, curve.forecasts, curve.recalibrated)
    counts, edges = np.histogram(curve.forecasts, _BARS, limits, weights=curve.count)
    parts = f"MCB {curve.miscalibration:.2g}, DSC {curve.discrimination:.2g}"
    title = f"{parts}, UNC {curve.uncertainty:.2g}"
    _draw_below(ax, limits, edges, counts, title=title, title_fontsize=style.NOTE)


def _bands(
    curve: ReliabilityCurve | CORPCurve | CalibrationCurve, places: tuple[str, str]
) -> list[tuple[np.ndarray, np.ndarray, style.Look]]:
    """The simultaneous band, and the pointwise one within it, with their looks."""
    wide, narrow = (
        {"color": color, "label": f"{100 * float(curve.confidence_level):.4g} %, {x}", "zorder": 1}
        for color, x in zip((style.PALE, _DARKER), places, strict=True)
    )
    return [
        (np.asarray(curve.simultaneous_low), np.asarray(curve.simultaneous_high), wide),
        (np.asarray(curve.pointwise_low), np.asarray(curve.pointwise_high), narrow),
    ]


def _fill_bands(ax: Axes, at: np.ndarray, curve: CORPCurve | CalibrationCurve) -> None:
    for low, high, look in _bands(curve, ("everywhere at once", "each forecast")):
        ax.fill_between(at, low, high, linewidth=0, **look)


def _draw_points(
    ax: Axes, x: np.ndarray, y: np.ndarray, color: str, marker: str, label: str | None
) -> None:
    if x.size:
        look: dict[str, Any] = {"color": color, "marker": marker, "linestyle": "none"}
        ax.plot(x, y, **look, markersize=3.5, label=label, zorder=4, clip_on=False)


def _show(ax: Axes, *values: np.ndarray, is_log: bool = False) -> tuple[float, float]:
    """Lets both axes show all values and a little more, but nothing beyond [0, 1]."""
    least, most = min(np.min(x) for x in values), max(np.max(x) for x in values)
    margin = max(0.03 * (most - least), 0.001)
    limits = float(max(0.0, least - margin)), float(min(1.0, most + margin))
    if is_log:
        limits = float(least / _LOG_MARGIN), float(min(1.0, most * _LOG_MARGIN))
        ax.set(xscale="log", yscale="log")
    ax.set(xlim=limits, ylim=limits, aspect="equal", anchor="N")
    return limits


def _draw_below(
    ax: Axes, limits: tuple[float, float], edges: np.ndarray, counts: np.ndarray, **options: Any
) -> None:
    """The numbers of forecasts below the curve, and the legend, which would hide data elsewhere."""
    ax.tick_params(labelbottom=False)
    below = ax.inset_axes((0.0, -_GAP - _HEIGHT, 1.0, _HEIGHT))
    below.bar(edges[:-1], counts, np.diff(edges), align="edge", color=style.GREY, linewidth=0)
    below.spines[["top", "right"]].set_visible(False)
    below.tick_params(labelsize=style.TICK, width=style.THIN, length=2.5)
    below.set(xscale=ax.get_xscale(), xlim=limits)
    below.set_xlabel("predicted probability", fontsize=style.LABEL)
    below.set_ylabel("count", fontsize=style.LABEL)
    figure = ax.figure
    width = ax.get_position(original=True).width * figure.bbox.width
    columns = 2 if width >= _WIDE * figure.dpi / 72 else 1
    spaces = {"borderaxespad": 0.0, "columnspacing": 1.0, "handletextpad": 0.6}
    style.legend_below(ax, below, _WORDS, 0.45, ncols=columns, **spaces, **options)
    if figure.get_layout_engine() is None:
        n_entries = len(ax.get_legend_handles_labels()[0])
        n_lines = -(-n_entries // columns) + ("title" in options) + 0.5
        ax.set_axes_locator(functools.partial(_above, points=_WORDS + _ENTRY * n_lines))


def _above(ax: Axes, renderer: Any, *, points: float) -> Bbox:
    """Where axes are that leave room for labels below them, in a figure without a layout engine.

    The numbers of forecasts have a part of the height of the axes, and words take some points.
    """
    box = ax.get_position(original=True)
    words_height = points / 72 * ax.figure.dpi / ax.figure.bbox.height
    height = max(0.4 * box.height, (box.height - words_height) / (1 + _GAP + _HEIGHT))
    return Bbox.from_bounds(box.x0, box.y1 - height, box.width, height)


def risk(curve: RiskCurve, *, ax: Axes | None = None) -> Axes:
    """Draws Kaplan-Meier against predicted risks by a time, with Greenwood's intervals.

    A group whose interval does not hold the mean predicted risk has another colour.

    Args:
        curve: the result of `calibjax.risk_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> model = cj.Weibull(jnp.ones(900), jnp.exp(jax.random.normal(jax.random.key(0), (900,))))
        >>> y = model.sample(jax.random.key(1))
        >>> plot.risk(cj.risk_curve(model, y, time=1.0, n_bins=5)).get_title("left")
        'Risk by 1, 900 rows in 5 groups'
    """
    style.check_type("curve", curve, RiskCurve)
    ax, count = style.new_axes(ax), np.asarray(curve.count)
    numbers = curve.predicted, curve.observed, curve.low, curve.high
    x, y, low, high = (np.asarray(number) for number in numbers)
    top = min(1.05 * float(np.nanmax([x, y, high])), 1.0)
    ax.plot([0, top], [0, top], label="calibrated", **style.IDEAL)
    look: style.Look = {"fmt": "o", "ms": 3, "lw": style.THIN}
    inside = style.BLUE, f"Kaplan-Meier, {100 * curve.confidence_level:.4g} % CI"
    for some, color, label in style.by_color((x < low) | (x > high), inside=inside):
        ends = np.nan_to_num([y - low, high - y])[:, some]
        ax.errorbar(x[some], y[some], ends, color=color, label=label, **look)
    ax.set_xlim(0, top)
    ax.set_ylim(0, top)
    title = f"Risk by {curve.time:.4g}, {count.sum():,} rows in {count.size} groups"
    style.labels(ax, title, "predicted risk", "observed risk")
    style.legend(ax, loc="upper left")
    return ax
