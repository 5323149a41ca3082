"""The plot of predicted and Kaplan-Meier risks."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import RiskCurve
from calibjax.plot import _style as style


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
    style.words(ax, title, "predicted risk", "observed risk")
    style.legend(ax, loc="upper left")
    return ax
