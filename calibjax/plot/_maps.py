"""Plots of maps: in which cells of predictions a model is wrong."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize

from calibjax.curves import ResidualMap, WitnessMap
from calibjax.plot import _style as style

# Maximum number of classes readable at half a page, and of edges with a number.
_MOST_ROWS, _MOST_TICKS = 12, 7
# All colour-blind readers can distinguish blue and vermillion.  The middle is dark enough to stand
# out from the white of empty cells.
_SIGNED = LinearSegmentedColormap.from_list("signed", [style.BLUE, "#F7F4EC", style.VERMILLION])
# How bright red, green and blue of one strength are; the fourth number is of the opacity.
_LUMINANCE = (0.2126, 0.7152, 0.0722, 0.0)
_CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": style.NOTE - 1}
_SMALL: dict[str, Any] = _CENTRED | {"fontsize": style.NOTE - 2.5}
# How many times longer than high the colour bar is.
_THINNESS = 35
# How wide a column must be, as a share of the axes, to hold a number.
_NARROWEST = 1 / 12


def witness(
    witness_map: WitnessMap, *, ax: Axes | None = None, classes: Sequence[str] | None = None
) -> Axes:
    """Draws which classes are more frequent or rarer than predicted, and at which probabilities.

    Rows are classes and columns are bins of the predicted probability of the class.  The number in
    a cell is the observed frequency less the mean prediction, in percentage points; the small one
    is the number of rows.  Cells that could be noise under a calibrated model are grey.  At most 12
    classes are shown, those with the largest scores, the worst one on top.

    Args:
        witness_map: what `witness_map` returns, with concrete arrays.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.
        classes: the names of all m classes, also of the class 0 of binary predictions.

    Returns:
        The axes.

    Raises:
        TypeError: ax is not an Axes.
        ValueError: the number of names is not the number of classes.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.2, 0.7, 0.7]))
        >>> found = cj.witness_map(jax.random.key(0), predictions, jnp.array([0, 1, 1, 1]))
        >>> ax = cj.plot.witness(found, classes=["dry", "rain"])
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['rain']
    """
    labels = np.asarray(witness_map.classes)
    m = int(labels[-1]) + 1
    names = [str(label) for label in range(m)] if classes is None else list(map(str, classes))
    if len(names) != m:
        raise ValueError(f"classes must hold the names of {m} classes, got {len(names)}.")
    count, significant = np.asarray(witness_map.count), np.asarray(witness_map.significant)
    value, score = np.asarray(witness_map.value), np.asarray(witness_map.score)
    shown = np.arange(labels.size)
    title = "Miscalibration by class and probability"
    if labels.size > _MOST_ROWS:
        largest = np.max(np.where(count > 0, np.abs(score), 0.0), axis=1)
        shown = np.argsort(-largest, kind="stable")[:_MOST_ROWS]
        title = f"Miscalibration: {_MOST_ROWS} worst of {labels.size} classes"
    if not significant.any():
        title = "No significant miscalibration"
    shown = shown[::-1]

    width, height = style.SIZE
    height *= max(0.65, min(1.5, 0.45 + 0.09 * shown.size))
    ax = style.new_axes(ax, (width, height), margins=None)
    cells = 100 * value[shown], significant[shown], count[shown]
    colours_mean = "← rarer than predicted · more frequent →  (% points)"
    _draw_cells(ax, 100 * np.asarray(witness_map.probability_edges), cells, colours_mean)
    # A dollar in a name does not start a formula.
    ticks = np.arange(shown.size) + 0.5
    ax.set_yticks(ticks, [names[labels[row]] for row in shown], parse_math=False)
    ax.tick_params(axis="y", labelsize=style.TICK if shown.size <= _MOST_ROWS / 2 else style.NOTE)
    style.labels(ax, title, "predicted probability of the class (%)", "")
    return ax


def residual_location(residual_map: ResidualMap, *, ax: Axes | None = None) -> Axes:
    """Draws where targets are higher or lower than predicted.

    Columns are bins of the predicted location, and rows are bins of the predicted spread.  The
    number in a cell is the mean residual in units of the predicted spread.  Cells that could be
    noise under a calibrated model are grey.

    Args:
        residual_map: what `residual_map` returns, with concrete arrays.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is not an Axes.
        ValueError: the map is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Normal(jnp.linspace(0.0, 1.0, 40), jnp.ones(40))
        >>> found = cj.residual_map(jax.random.key(0), predictions, predictions.loc + 2)
        >>> cj.plot.residual_location(found).get_title(loc="left")
        'Bias by forecast'
    """
    words = "← lower than predicted · higher →  (predicted spreads)"
    return _draw_residuals(residual_map, 0, np.asarray(residual_map.value)[0], ax, words)


def residual_spread(residual_map: ResidualMap, *, ax: Axes | None = None) -> Axes:
    """Draws where targets are more or less dispersed than predicted.

    As `residual_location`, but the number in a cell says by how many percent the spread of the
    targets around the predicted location, which is the root of their mean squared residual, is
    larger than the predicted spread.

    Args:
        residual_map: what `residual_map` returns, with concrete arrays.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is not an Axes.
        ValueError: the map is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Normal(jnp.linspace(0.0, 1.0, 40), jnp.ones(40))
        >>> found = cj.residual_map(jax.random.key(0), predictions, predictions.loc + 2)
        >>> cj.plot.residual_spread(found).get_xlabel()
        'predicted location'
    """
    ratio = np.sqrt(np.maximum(np.asarray(residual_map.value)[1] + 1, 0.0))
    words = "← narrower than predicted · wider →  (%)"
    return _draw_residuals(residual_map, 1, 100 * (ratio - 1), ax, words)


def _draw_residuals(
    residual_map: ResidualMap, layer: int, values: np.ndarray, ax: Axes | None, colours_mean: str
) -> Axes:
    style.check_known("residual_map", residual_map)
    count, name = np.asarray(residual_map.count), ("Bias", "Dispersion error")[layer]
    significant = np.asarray(residual_map.significant)[layer]
    # Bins without any row have equal ends.
    columns, rows = np.flatnonzero(count.any(axis=1)), np.flatnonzero(count.any(axis=0))
    cells = [x[np.ix_(columns, rows)].T for x in (values, significant, count)]
    ax = style.new_axes(ax, margins=None)
    _draw_cells(ax, np.arange(columns.size + 1), cells, colours_mean)
    ax.set_xticks(*_ticks(np.asarray(residual_map.location_edges), columns))
    ax.set_yticks(*_ticks(np.asarray(residual_map.spread_edges), rows))
    title = f"{name} by forecast"
    if not significant.any():
        title = f"No significant {name.lower()}"
    style.labels(ax, title, "predicted location", "predicted spread")
    return ax


def _ticks(edges: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Where ends of bins are drawn, and their numbers with three digits."""
    ends = np.append(edges[bins], edges[bins[-1] + 1])
    step = -(-ends.size // _MOST_TICKS)
    return np.arange(ends.size)[::step], [f"{end:.3g}".replace("-", "−") for end in ends[::step]]


def _draw_cells(ax: Axes, x: np.ndarray, cells: Sequence[np.ndarray], colours_mean: str) -> None:
    """Draws values of cells; row 0 is the lowest, and column k reaches from x[k] to x[k + 1].

    Cells have a value, whether it is significant, and how many rows they hold, ``[r, c]`` each.

    Significant cells have a colour and, where there is room, their number.  Other cells are grey if
    they hold rows, and white otherwise.  Below stands how many rows a cell holds.  `colours_mean`
    are the words below the colour bar, which is left out if no cell has a colour.
    """
    values, significant, count = cells
    filled = count > 0
    n_rows, n_columns = values.shape
    y = np.arange(n_rows + 1)
    lines: dict[str, Any] = {"edgecolors": "white", "linewidth": style.THIN}
    noise = np.ma.masked_where(~filled, np.zeros_like(values))
    ax.pcolormesh(x, y, noise, cmap=ListedColormap([style.PALE]), **lines)

    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    has_room = n_columns * _NARROWEST <= 1
    middles = (x[:-1] + x[1:]) / 2
    if has_room:
        for row, column in np.argwhere(filled & ~significant):
            n = _rows_in_short(count[row, column])
            ax.text(middles[column], row + 0.5, n, color=style.GREY, **_SMALL)
    greys = "grey: not significant; white: no predictions"
    if has_room:
        greys += "\nsmall numbers: rows in the cell"
    if not significant.any():
        # Below the name of the axis, where no cell is hidden.
        where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        look: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": style.NOTE}
        ax.annotate(greys, (0.5, 0.0), (0.0, -style.BELOW), **where, **look)
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
    bar.ax.tick_params(labelsize=style.NOTE, length=2, width=style.THIN)
    bar.ax.locator_params(nbins=5)
    bar.set_label(f"{colours_mean}\n{greys}", fontsize=style.NOTE)


def _short(value: float) -> str:
    """A number with its sign and two digits."""
    digits = 0 if abs(value) >= 9.5 else 1 if abs(value) >= 0.95 else 2
    return f"{value:+.{digits}f}".replace("-", "−")


def _rows_in_short(n: int) -> str:
    """A number of rows in four letters."""
    return f"{n}" if n < 10_000 else f"{n / 1000:.0f}k"
