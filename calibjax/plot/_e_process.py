"""A picture of the evidence that a monitor has gathered."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from calibjax.plot import _style as style


def e_process(
    log_e_values: ArrayLike,
    *,
    ax: Axes | None = None,
    level: float = 0.05,
    names: Sequence[str] | None = None,
    alarm: int | None = None,
    changed: int | None = None,
) -> Axes:
    """The e-value after each update on a log axis, with the line 1 / level.

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
        changed: the number of the update since when the model is wrong, from 1, where `changed_at`
            lies; None leaves it out.

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
    for name, update in (("alarm", alarm), ("changed", changed)):
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
    if changed is not None:
        since = f"wrong since about {_name_of(changed, names)}"
        ax.axvline(changed, color=style.GREY, linewidth=style.THIN, linestyle="--", label=since)
    over = [alarm] if alarm is not None else np.flatnonzero(powers >= line).tolist()
    if over:
        first = over[0]
        ax.plot(
            [first],
            powers[[first]],
            "o",
            color=style.VERMILLION,
            markersize=4,
            zorder=4,
            clip_on=False,
            label=f"alarm at {_name_of(first, names)}",
        )
    ax.set_xlim(0, log_e.size)
    # Names, such as dates, are long.
    ax.xaxis.set_major_locator(MaxNLocator(6 if names is None else 4, integer=True))
    if names is not None:
        ax.xaxis.set_major_formatter(lambda x, _: names[int(x) - 1] if 1 <= x <= log_e.size else "")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")
    style.words(ax, "Evidence against calibration", "updates", "e-value")
    style.legend(ax, loc="best")
    return ax


def _name_of(update: int, names: Sequence[str] | None) -> str:
    return f"{update:,}" if names is None else names[update - 1]
