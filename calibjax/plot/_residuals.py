"""Pictures of where predictions of numbers are wrong."""

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import ResidualMap
from calibjax.plot._cells import draw_cells
from calibjax.plot._style import check_known, new_axes, words

# The most edges that have a number.
_MOST_TICKS = 7


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
        TypeError: ax is no Axes.
        ValueError: the map is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Normal(jnp.linspace(0.0, 1.0, 40), jnp.ones(40))
        >>> found = cj.residual_map(jax.random.key(0), predictions, predictions.loc + 2)
        >>> cj.plot.residual_location(found).get_title(loc="left")
        'Where the predicted location is wrong'
    """
    return _draw(
        residual_map,
        0,
        np.asarray(residual_map.value[0]),
        ax,
        "Where the predicted location is wrong",
        "No location is wrong beyond noise",
        "← lower than predicted · higher →  (predicted spreads)",
    )


def residual_spread(residual_map: ResidualMap, *, ax: Axes | None = None) -> Axes:
    """Draws where targets are spread wider or less wide than predicted.

    As `residual_location`, but the number in a cell says by how many percent the spread of the
    targets around the predicted location, which is the root of their mean squared residual, is
    larger than the predicted spread.

    Args:
        residual_map: what `residual_map` returns, with concrete arrays.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.

    Returns:
        The axes.

    Raises:
        TypeError: ax is no Axes.
        ValueError: the map is NaN.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj, calibjax.plot
        >>> predictions = cj.Normal(jnp.linspace(0.0, 1.0, 40), jnp.ones(40))
        >>> found = cj.residual_map(jax.random.key(0), predictions, predictions.loc + 2)
        >>> cj.plot.residual_spread(found).get_xlabel()
        'predicted location'
    """
    ratio = np.sqrt(np.maximum(np.asarray(residual_map.value[1]) + 1, 0.0))
    return _draw(
        residual_map,
        1,
        100 * (ratio - 1),
        ax,
        "Where the predicted spread is wrong",
        "No spread is wrong beyond noise",
        "← narrower than predicted · wider →  (%)",
    )


def _draw(
    residual_map: ResidualMap,
    layer: int,
    values: np.ndarray,
    ax: Axes | None,
    title: str,
    title_of_noise: str,
    colours_mean: str,
) -> Axes:
    check_known("residual_map", residual_map)
    count = np.asarray(residual_map.count)
    significant = np.asarray(residual_map.significant[layer])
    # Bins without any row have equal ends.
    columns, rows = np.flatnonzero(count.any(axis=1)), np.flatnonzero(count.any(axis=0))
    cells = np.ix_(columns, rows)
    ax = new_axes(ax)
    draw_cells(
        ax,
        np.arange(columns.size + 1),
        values[cells].T,
        significant[cells].T,
        count[cells].T,
        colours_mean,
    )
    ax.set_xticks(*_ticks(np.asarray(residual_map.location_edges), columns))
    ax.set_yticks(*_ticks(np.asarray(residual_map.spread_edges), rows))
    words(
        ax,
        title if significant.any() else title_of_noise,
        "predicted location",
        "predicted spread",
    )
    return ax


def _ticks(edges: np.ndarray, bins: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Where ends of bins are drawn, and their numbers with three digits."""
    ends = np.append(edges[bins], edges[bins[-1] + 1])
    step = -(-ends.size // _MOST_TICKS)
    return np.arange(ends.size)[::step], [f"{end:.3g}".replace("-", "−") for end in ends[::step]]
