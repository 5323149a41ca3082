"""Plots of the probability integral transform, of coverage, and of spread against skill."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from calibjax._base.text import percent
from calibjax.curves import CoverageCurve, PITCurve, SpreadSkillCurve
from calibjax.plot import _style as style


def pit(curve: PITCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the histogram of the PIT; bars outside the simultaneous band have another colour.

    Args:
        curve: the result of `calibjax.pit_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.
        ValueError: the curve is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.pit_curve(jax.random.key(1), predictions, targets, n_bins=5)
        >>> ax = plot.pit(curve)
        >>> ax.get_ylabel()
        'density'
    """
    _check(curve, PITCurve)
    ax = style.new_axes(ax)
    edges, density = np.asarray(curve.edges), np.asarray(curve.density)
    low, high = np.asarray(curve.density_low), np.asarray(curve.density_high)
    outside = (density < low) | (density > high)
    look: style.Look = {"align": "edge", "edgecolor": "white", "linewidth": 0.5}
    for bars, color, label in style.by_color(outside):
        at, width = edges[:-1][bars], np.diff(edges)[bars]
        ax.bar(at, density[bars], width, color=color, label=label, **look)
    # The band stands before the bars, because it begins inside of them.
    ax.stairs(high, edges, baseline=low, fill=True, **_BAND_BEFORE, label=_band_name(curve))
    ax.axhline(1.0, **{**style.IDEAL, "zorder": 5})
    ax.set_xlim(0, 1)
    _show(ax, 0.0, 1.3 * np.nanmax([*density, *high, 1.0]))
    style.labels(
        ax, f"Histogram of the PIT, {_rows(curve)}", "probability integral transform", "density"
    )
    style.legend(ax, loc="upper right", ncols=2)
    return ax


def pit_difference(curve: PITCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the distribution function of the PIT minus the diagonal, in its simultaneous band.

    The curve has another colour where it is outside.

    Args:
        curve: the result of `calibjax.pit_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.
        ValueError: the curve is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.pit_curve(jax.random.key(1), predictions, targets, n_bins=5)
        >>> ax = plot.pit_difference(curve)
        >>> ax.get_ylabel()
        'ECDF of the PIT − z'
    """
    _check(curve, PITCurve)
    ax = style.new_axes(ax)
    grid, difference = np.asarray(curve.grid), np.asarray(curve.difference)
    low, high = np.asarray(curve.difference_low), np.asarray(curve.difference_high)
    _draw_in_band(ax, curve, (grid, difference, low, high), drawstyle="steps-post")
    ax.axhline(0.0, **style.IDEAL)
    ax.set_xlim(0, 1)
    bottom, top = np.min([low, difference]), np.max([high, difference])
    _show(ax, bottom - 0.05 * (top - bottom), top + 0.25 * (top - bottom))
    style.labels(ax, f"ECDF of the PIT, {_rows(curve)}", "probability z", "ECDF of the PIT − z")
    style.legend(ax, loc="upper right", ncols=2)
    return ax


def coverage(curve: CoverageCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the observed coverage of central intervals against their probability.

    The curve has another colour where it leaves the band.  The widths of the intervals at the
    probabilities closest to 50 % and 90 % are written into the plot.

    Args:
        curve: the result of `calibjax.coverage_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.
        ValueError: the curve is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.coverage_curve(jax.random.key(1), predictions, targets, n_levels=4)
        >>> ax = plot.coverage(curve)
        >>> ax.get_ylabel()
        'observed coverage'
    """
    _check(curve, CoverageCurve)
    ax = style.new_axes(ax)
    # All intervals with the probabilities 0 and 1 have the coverage 0 and 1.
    inner = curve.levels, curve.coverage, curve.low, curve.high
    whole = (np.r_[0, np.asarray(x), 1] for x in inner)
    _draw_in_band(ax, curve, whole, marker="o", markersize=2.5)
    ax.plot([0, 1], [0, 1], **style.IDEAL)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    style.labels(ax, "Coverage", "probability of central interval", "observed coverage")
    style.legend(ax, loc="upper left")
    ax.text(0.98, 0.04, _widths(curve), transform=ax.transAxes, **_CORNER)
    return ax


def spread_skill(curve: SpreadSkillCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the error of the ensemble mean against the spread of the members.

    The curve has another colour where it leaves the band; axes are logarithmic where spreads differ
    by more than a factor of ten.

    Args:
        curve: the result of `calibjax.spread_skill_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.
        ValueError: the curve is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> truth = cj.Normal(jnp.zeros(500), jnp.linspace(1.0, 2.0, 500))
        >>> members = truth.sample(jax.random.key(0), (5,)).T
        >>> targets = truth.sample(jax.random.key(1))
        >>> curve = cj.spread_skill_curve(jax.random.key(2), cj.Empirical(members), targets)
        >>> ax = plot.spread_skill(curve)
        >>> ax.get_ylabel()
        'error of the ensemble mean'
    """
    _check(curve, SpreadSkillCurve)
    ax = style.new_axes(ax)
    known = np.flatnonzero(np.asarray(curve.count))
    order = known[np.argsort(np.asarray(curve.spread)[known])]
    fields = curve.spread, curve.error, curve.error_low, curve.error_high
    points = [np.asarray(x)[order] for x in fields]
    _draw_in_band(ax, curve, points, marker="o", markersize=2.5)
    spread = points[0]
    ax.plot(spread, spread, **style.IDEAL)
    if 0 < 10 * spread[0] < spread[-1]:
        ax.set_xscale("log")
        ax.set_yscale("log")
    style.labels(
        ax, f"Spread and skill, {_rows(curve)}", "spread of members", "error of the ensemble mean"
    )
    style.legend(ax, loc="upper left")
    return ax


_BAND_BEFORE: style.Look = {**style.BAND, "color": style.GREY, "alpha": 0.35, "zorder": 4}
_CORNER: style.Look = {"fontsize": style.NOTE, "color": style.GREY, "ha": "right", "va": "bottom"}


def _check(curve: object, expected: type) -> None:
    style.check_type("curve", curve, expected)
    style.check_known("curve", curve)


def _draw_in_band(ax: Axes, curve: Any, points: Iterable[np.ndarray], **look: Any) -> None:
    """A curve of points (x, y, low, high) in its band, outside of which it has another colour."""
    x, y, low, high = points
    ax.fill_between(x, low, high, **style.BAND, label=_band_name(curve))
    ax.plot(x, y, **{**style.CURVE, **look})
    outside = (y < low) | (y > high)
    if outside.any():
        ax.plot(x, np.where(outside, y, np.nan), **{**style.ALARM, **look}, label="outside")


def _show(ax: Axes, bottom: float, top: float) -> None:
    """Sets the limits of y, and keeps in sight what other axes with the same limits hold."""
    shared = ax.get_shared_y_axes().get_siblings(ax)
    others = [other.get_ylim() for other in shared if other is not ax and other.has_data()]
    ax.set_ylim(min([bottom, *(y[0] for y in others)]), max([top, *(y[1] for y in others)]))


def _band_name(curve: PITCurve | CoverageCurve | SpreadSkillCurve) -> str:
    return f"{100 * float(curve.confidence_level):.4g} % range if calibrated"


def _rows(curve: PITCurve | SpreadSkillCurve) -> str:
    return f"{round(float(np.sum(np.asarray(curve.count)))):,} rows"


def _widths(curve: CoverageCurve) -> str:
    """The widths of two intervals in words, none for a family without quantiles."""
    levels, widths = np.asarray(curve.levels), np.asarray(curve.width)
    chosen = sorted({int(np.argmin(np.abs(levels - level))) for level in (0.5, 0.9)})
    known = [k for k in chosen if not np.isnan(widths[k])]
    if not known:
        return ""
    lines = (f"{percent(levels[k], 0)}: {widths[k]:.3g}" for k in known)
    return "\n".join(("median width", *lines))
