"""The picture of a test."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.plot._style import ALARM, GREY, PALE, THIN, legend, new_axes, words


def null_distribution(result: CalibrationTestResult, *, ax: Axes | None = None) -> Axes:
    """Draws the statistic of a test among its draws for a calibrated model.

    Args:
        result: the result of a test that draws, such as `calibration_test`.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is no Axes.
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
    ax = new_axes(ax)
    heights = ax.hist(
        draws,
        bins=n_bins,
        histtype="stepfilled",
        facecolor=PALE,
        edgecolor=GREY,
        linewidth=THIN,
        label="calibrated model",
    )[0]
    # There is room for the legend, of some 30 points, above the curve and the line.
    height = ax.get_position(original=True).height * ax.figure.bbox.height * 72 / ax.figure.dpi
    share = float(np.clip(40 / height, 0.25, 0.5))
    ax.set_ylim(0.0, np.max(heights) / (1 - share))
    pvalue = f"{float(result.pvalue):.2g}"
    ax.axvline(statistic, ymax=1 - share, **ALARM, label=f"your model, p = {pvalue}")
    words(ax, "Your model among calibrated ones", "test statistic", f"number of {draws.size} draws")
    legend(ax, loc="best")
    return ax
