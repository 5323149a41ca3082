"""How all plots look: colours that colour-blind readers tell apart, sizes for half a page."""

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import ScaledTranslation

#: Colours of Okabe and Ito, Color Universal Design, 2008.
SKY = "#56B4E9"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
#: Ideal lines, and text beside the data.
GREY = "#595959"
#: What the data do not decide: bands, noise, empty cells.
PALE = "#D9D9D9"

#: The width and the height of a figure in inches: half the width of a page.
SIZE = (3.3, 2.6)

#: Where axes of this size are in their figure.  To compute a layout takes longer than to draw it.
MARGINS = {"left": 0.22, "right": 0.96, "bottom": 0.17, "top": 0.87}

#: Points: 8 is what journals print.
TITLE, LABEL, TICK, NOTE = 9, 8, 7, 7
LINE, THIN = 1.4, 0.8

#: Points below the axes that the name of the axis takes.
BELOW = 27.0
# Number of layouts after which axes with axes below them move by less than some pixels.
_LAYOUTS = 3

#: What an artist of each meaning looks like: keywords of matplotlib.
Look = Mapping[str, Any]
CURVE: Look = {"color": BLUE, "linewidth": LINE, "zorder": 3}
IDEAL: Look = {"color": GREY, "linewidth": THIN, "linestyle": "--", "zorder": 2}
BAND: Look = {"color": PALE, "linewidth": 0.0, "zorder": 1}
ALARM: Look = {"color": VERMILLION, "linewidth": LINE, "zorder": 3}


class SettledLayout(ConstrainedLayoutEngine):
    """Constrained layout, applied until nothing is cut off.

    The height of axes below others is a share of theirs, which the layout changes.
    """

    def execute(self, fig: Figure) -> None:
        for _ in range(_LAYOUTS if any(ax.child_axes for ax in fig.axes) else 1):
            super().execute(fig)


class NotebookFigure(Figure):
    """A figure that notebooks show, even if pyplot is not imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def new_axes(
    ax: Axes | None, size: tuple[float, float] = SIZE, margins: dict[str, float] | None = MARGINS
) -> Axes:
    """The axes to draw into, in our style: `ax`, or the axes of a new white figure.

    Its `margins` are shares of its size; without them a layout is computed.
    """
    if ax is None:
        layout = SettledLayout() if margins is None else None
        figure = NotebookFigure(figsize=size, dpi=200, facecolor="white", layout=layout)
        ax = figure.subplots(gridspec_kw=margins)
    elif not isinstance(ax, Axes):
        raise TypeError(f"ax must be the Axes of a matplotlib figure or None, got {type(ax)}.")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=TICK, width=THIN, length=2.5)
    return ax


def check_type(name: str, value: object, expected: type) -> None:
    """A TypeError unless the argument has this type."""
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be a {expected.__name__}, got {type(value).__name__}.")


def check_known(name: str, curve: Any) -> None:
    """A ValueError if the numbers of a curve are NaN: a plot would show nothing wrong."""
    if math.isnan(float(curve.confidence_level)):
        raise ValueError(
            f"{name} must hold numbers, got NaN: the cdf or the residual of a row is not known."
        )


def by_color(
    outside: np.ndarray, label: str = "outside", inside: tuple[str, str | None] = (SKY, None)
) -> list[tuple[np.ndarray, str, str | None]]:
    """Which points have which color and label: those in a range, and those that are outside."""
    looks = (~outside, *inside), (outside, VERMILLION, label)
    return [look for look in looks if look[0].any()]


def labels(ax: Axes, title: str, x: str, y: str) -> None:
    """The title and the names of both coordinates, with their units."""
    ax.set_title(title, fontsize=TITLE, loc="left")
    ax.set_xlabel(x, fontsize=LABEL)
    ax.set_ylabel(y, fontsize=LABEL)


def legend_below(
    ax: Axes, lowest: Axes | None = None, points: float = BELOW, middle: float = 0.5, **options: Any
) -> None:
    """A legend some points below the lowest axes, by default `ax`, where it hides nothing."""
    below = ScaledTranslation(0.0, -points / 72, ax.figure.dpi_scale_trans)
    anchor = {"bbox_to_anchor": (middle, 0.0), "bbox_transform": (lowest or ax).transAxes + below}
    legend(ax, loc="upper center", **{"ncols": 2, **anchor, **options})


def legend(ax: Axes, **options: Any) -> None:
    """A legend without a frame, for the artists that have a label."""
    ax.legend(**{"fontsize": NOTE, "frameon": False, "handlelength": 1.6, **options})
