"""A picture of how errors depend on a covariate."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import CovariateCurve
from calibjax.plot import _style as style

# What is shown of each statistic, less what is predicted.
_UNITS = {
    "rate": "observed rate − predicted",
    "sureness": "factor that logits should have − 1",
    "location": "targets − predictions\n(predicted deviations)",
    "spread": "observed spread / predicted − 1",
    "coverage": "coverage of central intervals − predicted",
    "top label": "accuracy − predicted",
}


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
        for place, low, high in zip(x, curve.low[j, shown], curve.high[j, shown], strict=True):
            ax.fill_between(place + half, low, high, **style.BAND)
    else:
        ax.fill_between(x, curve.low[j, shown], curve.high[j, shown], **style.BAND)
    ax.plot([], [], color=style.PALE, linewidth=6, label="if calibrated")
    ax.axhline(0.0, **style.IDEAL)
    ends = np.stack([curve.interval_low[j, shown], curve.interval_high[j, shown]])
    arms = np.abs(ends - value)
    # An interval without an end goes as far as the longest one that has both.
    arms = np.where(np.isfinite(arms), arms, np.max(arms, initial=0, where=np.isfinite(arms)))
    is_beyond = curve.significant[j, shown]
    for chosen, color, label in (
        (~is_beyond, style.BLUE, "observed"),
        (is_beyond, style.VERMILLION, "beyond chance"),
    ):
        if chosen.any():
            ax.errorbar(
                x[chosen],
                value[chosen],
                yerr=arms[:, chosen],
                fmt="o",
                color=color,
                markersize=3.5,
                linewidth=style.THIN,
                label=label,
                zorder=3,
            )
    if curve.categories:
        names = [curve.categories[c] for c in shown]
        ax.set_xticks(x, names, parse_math=False, rotation=0 if len(names) <= 6 else 90)
    title = f"The error depends on {curve.name}" if is_beyond.any() else "No error beyond noise"
    unit = _UNITS.get(statistic, f"frequency of {statistic} − predicted")
    style.words(ax, title, curve.name, unit)
    style.legend_below(ax)
    return ax
