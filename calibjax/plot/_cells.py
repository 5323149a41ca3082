"""Cells with a sign: coloured where they are significant, grey where they may be noise."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize

from calibjax.plot._style import BLUE, GREY, NOTE, PALE, THIN, VERMILLION

# Blue and vermillion are told apart by all colour-blind readers.  The middle is dark enough to be
# seen beside the white of empty cells.
_SIGNED = LinearSegmentedColormap.from_list("signed", [BLUE, "#F7F4EC", VERMILLION])
# How bright red, green and blue of one strength are; the fourth number is of the opacity.
_LUMINANCE = (0.2126, 0.7152, 0.0722, 0.0)
_CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": NOTE - 1}
_SMALL: dict[str, Any] = _CENTRED | {"fontsize": NOTE - 2.5}
# How many times longer than high the colour bar is.
_THINNESS = 35
# Points below the axes that the name of the axis takes.
_WORDS = 27.0
# How wide a column must be, as a share of the axes, to hold a number.
_NARROWEST = 1 / 12


def draw_cells(
    ax: Axes,
    x: np.ndarray,
    values: np.ndarray,
    significant: np.ndarray,
    count: np.ndarray,
    colours_mean: str,
) -> None:
    """Draws `values` ``[r, c]``; row 0 is the lowest, and column k reaches from x[k] to x[k + 1].

    Significant cells have a colour and, where there is room, their number.  Other cells are grey if
    they hold rows, and white otherwise.  Below stands how many rows a cell holds.  `colours_mean`
    are the words below the colour bar, which is left out if no cell has a colour.
    """
    filled = count > 0
    n_rows, n_columns = values.shape
    y = np.arange(n_rows + 1)
    lines: dict[str, Any] = {"edgecolors": "white", "linewidth": THIN}
    noise = np.ma.masked_where(~filled, np.zeros_like(values))
    ax.pcolormesh(x, y, noise, cmap=ListedColormap([PALE]), **lines)

    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    has_room = n_columns * _NARROWEST <= 1
    middles = (x[:-1] + x[1:]) / 2
    if has_room:
        for row, column in np.argwhere(filled & ~significant):
            n = _rows_in_short(count[row, column])
            ax.text(middles[column], row + 0.5, n, color=GREY, **_SMALL)
    greys = "grey: within the noise; white: no predictions"
    if has_room:
        greys += "\nsmall numbers: rows in the cell"
    if not significant.any():
        # Below the name of the axis, where no cell is hidden.
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": NOTE}
        ax.annotate(greys, (0.5, 0.0), (0.0, -_WORDS), **place, **style)
        return

    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    limit = finite[significant].max()
    norm = Normalize(-limit, limit)
    shown = np.ma.masked_where(~significant, values)
    mesh = ax.pcolormesh(x, y, shown, cmap=_SIGNED, norm=norm, **lines)
    if has_room:
        for row, column in np.argwhere(significant):
            value, middle = values[row, column], middles[column]
            dark = np.dot(_LUMINANCE, _SIGNED(norm(value))) < 0.4
            color = "white" if dark else "black"
            ax.text(middle, row + 0.66, _short(value), color=color, **_CENTRED)
            n = _rows_in_short(count[row, column])
            ax.text(middle, row + 0.24, n, color=color, **_SMALL)
    # The strip is as wide as the axes, however high these are.
    share = ax.bbox.width / ax.bbox.height / _THINNESS
    bar = ax.figure.colorbar(
        mesh, ax=ax, location="bottom", fraction=min(share, 0.5), aspect=_THINNESS, pad=0.02
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=NOTE, length=2, width=THIN)
    bar.ax.locator_params(nbins=5)
    bar.set_label(f"{colours_mean}\n{greys}", fontsize=NOTE)


def _short(value: float) -> str:
    """A number with its sign and two digits."""
    digits = 0 if abs(value) >= 9.5 else 1 if abs(value) >= 0.95 else 2
    return f"{value:+.{digits}f}".replace("-", "−")


def _rows_in_short(n: int) -> str:
    """A number of rows in four letters."""
    return f"{n}" if n < 10_000 else f"{n / 1000:.0f}k"
