"""The plot of a smooth calibration curve."""

from matplotlib.axes import Axes

from calibjax.curves import CalibrationCurve
from calibjax.plot import _style as style
from calibjax.plot._reliability import draw_below, draw_points, fill_bands, show


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
    ax, p = style.new_axes(ax, (3.3, 4.0)), curve.predicted
    ax.plot([0, 1], [0, 1], label="calibrated", **style.IDEAL)
    fill_bands(ax, p, curve)
    ax.plot(p, curve.frequency, label="smooth frequency", **style.CURVE)
    outside = (p < curve.simultaneous_low) | (p > curve.simultaneous_high)
    draw_points(ax, p[outside], curve.frequency[outside], style.VERMILLION, ".", "significant")
    title = f"Calibration curve, n = {curve.count.sum():,}"
    style.words(ax, title, "", "observed frequency")
    # Where axes are logarithmic, bands that go to 0 must not make them long.
    seen = curve.pointwise_low.clip(p[0]), curve.pointwise_high
    limits = show(ax, p, curve.frequency, *seen, is_log=curve.is_rare)
    draw_below(ax, limits, curve.edges, curve.count)
    return ax
