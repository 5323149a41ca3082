"""The picture of losses at all thresholds."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import MurphyCurve
from calibjax.plot import _style as style


def murphy(curve: MurphyCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the mean loss of decision makers at each threshold, or its difference, with the band.

    Of one model the loss of somebody who knows how often events happen, and no more, is there too.
    The band is the simultaneous one.

    Args:
        curve: the result of `calibjax.murphy_curve`.
        ax: axes of matplotlib to draw into; by default those of a new figure.

    Returns:
        The axes; their figure is ``ax.figure``.

    Raises:
        TypeError: an argument of another type.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> from calibjax import plot
        >>> predictions = cj.Bernoulli(jnp.linspace(0.05, 0.95, 200))
        >>> targets = predictions.sample(jax.random.key(0))
        >>> curve = cj.murphy_curve(jax.random.key(1), predictions, targets)
        >>> plot.murphy(curve).get_xlabel()
        'cost / damage, the threshold to act'
    """
    if not isinstance(curve, MurphyCurve):
        raise TypeError(f"curve must be a MurphyCurve, got {type(curve).__name__}.")
    ax = style.new_axes(ax)
    at = np.asarray(curve.thresholds)
    level = f"{100 * float(curve.confidence_level):.4g} %"
    low, high = np.asarray(curve.simultaneous_low), np.asarray(curve.simultaneous_high)
    ax.fill_between(at, low, high, **style.BAND, label=f"band {level}")
    if curve.is_difference:
        ax.axhline(0.0, **style.IDEAL)
        title, unit = "Loss minus that of the other", "difference of mean losses"
    else:
        ax.plot(at, curve.base_rate_loss, **style.IDEAL, label="base rate")
        title, unit = "Loss of decision makers", "mean loss / damage"
    ax.plot(at, curve.loss, **style.CURVE, label="difference" if curve.is_difference else "model")
    ax.set_xlim(0.0, 1.0)
    style.words(ax, title, "cost / damage, the threshold to act", unit)
    style.legend(ax)
    return ax
