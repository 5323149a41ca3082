"""The picture of the contributions of rows to the squared kernel calibration error."""

import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes

from calibjax.plot._style import ALARM, BLUE, CURVE, IDEAL, legend, new_axes, words

# The number of points of the curve, whatever n is.
_POINTS = 400


def contributions(values: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draws the contributions of all rows, the largest first, and their mean, which is the SKCE.

    A steep start says that few rows cause the error.

    Args:
        values: what `contributions` returns, ``[n]``; NaN stands for masked rows.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is no Axes.
        ValueError: values are not of the shape ``[n]`` with at least one number.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> ax = cj.plot.contributions(jnp.array([0.3, -0.1, 0.1]))
        >>> ax.get_xlabel()
        'rows, by contribution (%)'
    """
    given = np.asarray(values, float)
    numbers = given[~np.isnan(given)]
    if given.ndim != 1 or not numbers.size:
        raise ValueError(f"values must be numbers of shape [n], got shape {list(given.shape)}.")
    numbers = np.sort(numbers)[::-1]
    index = np.unique(np.linspace(0, numbers.size - 1, _POINTS).round().astype(int))
    share = 100 * (index + 0.5) / numbers.size

    ax = new_axes(ax)
    ax.fill_between(share, numbers[index], color=BLUE, alpha=0.2, linewidth=0.0)
    ax.plot(share, numbers[index], **CURVE)
    ax.axhline(0.0, **IDEAL)
    mean = float(numbers.mean())
    ax.axhline(mean, **ALARM, label=f"mean = SKCE = {mean:.3g}".replace("-", "−"))
    ax.set_xlim(0, 100)
    words(ax, "Contributions of rows to the error", "rows, by contribution (%)", "contribution")
    legend(ax, loc="upper right")
    return ax
