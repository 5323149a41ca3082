"""The picture of predicted and observed risks of lifetimes."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import RiskCurve
from calibjax.plot import _style as style

# The looks of the points of each time.
_LOOKS = ((style.BLUE, "o"), (style.VERMILLION, "s"), (style.SKY, "D"), (style.GREY, "^"))


def risk(curve: RiskCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the observed risk of groups of rows against the predicted one, with its intervals.

    A calibrated model is near the diagonal.  Each time has a colour of its own.

    Args:
        curve: the result of `calibjax.risk_curve` at one to four times.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.
        ValueError: the curve is NaN, or of more than four times, which cannot be told apart.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Weibull(jnp.ones(400), jnp.linspace(0.5, 2.0, 400))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> plot.risk(cj.risk_curve(predictions, targets, jnp.array([1.0]))).get_ylabel()
        'observed risk'
    """
    if not isinstance(curve, RiskCurve):
        raise TypeError(f"curve must be a RiskCurve, got {type(curve).__name__}.")
    style.check_known("curve", curve)
    times = np.asarray(curve.at)
    if times.size > len(_LOOKS):
        raise ValueError(f"curve must be of at most {len(_LOOKS)} times, got {times.size}.")
    ax = style.new_axes(ax)
    ax.plot([0, 1], [0, 1], **style.IDEAL)
    largest = 0.0
    for k, (time, (color, marker)) in enumerate(zip(times, _LOOKS, strict=False)):
        predicted, observed, low, high = (
            np.asarray(x)[k] for x in (curve.predicted, curve.observed, curve.low, curve.high)
        )
        known = ~np.isnan(observed)
        predicted, observed, low, high = (x[known] for x in (predicted, observed, low, high))
        ax.errorbar(
            predicted,
            observed,
            [np.maximum(observed - low, 0), np.maximum(high - observed, 0)],
            color=color,
            marker=marker,
            markersize=3.5,
            linewidth=style.LINE,
            elinewidth=style.THIN,
            label=f"until {time:.4g}",
        )
        largest = max([largest, *predicted, *high])
    limits = (0.0, min(1.0, 1.03 * largest) if largest else 1.0)
    ax.set(xlim=limits, ylim=limits)
    level = f"{100 * float(curve.confidence_level):.4g} %"
    n_rows = int(np.sum(np.asarray(curve.count)[:1]))
    style.words(
        ax, f"Risk of {n_rows:,} rows, intervals {level}", "predicted risk", "observed risk"
    )
    style.legend(ax, loc="upper left")
    return ax
