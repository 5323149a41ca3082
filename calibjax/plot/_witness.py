"""Pictures of where predictions of classes are wrong."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from calibjax.curves import WitnessMap
from calibjax.plot._cells import draw_cells
from calibjax.plot._style import NOTE, SIZE, TICK, new_axes, words

# More classes than this are not readable at half a page.
_MOST_ROWS = 12


def witness(
    witness_map: WitnessMap, *, ax: Axes | None = None, classes: Sequence[str] | None = None
) -> Axes:
    """Draws which classes happen more or less often than predicted, and at which probabilities.

    Rows are classes and columns are bins of the predicted probability of the class.  The number in
    a cell is the observed frequency less the mean prediction, in percentage points; the small one
    is the number of rows.  Cells that could be noise under a calibrated model are grey.  Of more
    than 12 classes it shows the 12 with the largest scores, the worst one on top.

    Args:
        witness_map: what `witness_map` returns, with concrete arrays.
        ax: the axes to draw into; None makes a new figure, ``ax.figure``.
        classes: the names of all m classes, also of the class 0 of binary predictions.

    Returns:
        The axes.

    Raises:
        TypeError: ax is no Axes.
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
    count, significant, value, score = (
        np.asarray(x)
        for x in (
            witness_map.count,
            witness_map.significant,
            witness_map.value,
            witness_map.score,
        )
    )
    shown = np.arange(labels.size)
    title = "Where the model is wrong"
    if labels.size > _MOST_ROWS:
        largest = np.max(np.where(count > 0, np.abs(score), 0.0), axis=1)
        shown = np.argsort(-largest, kind="stable")[:_MOST_ROWS]
        title = f"The worst {_MOST_ROWS} of {labels.size} classes"
    if not significant.any():
        title = "No class is wrong beyond noise"
    shown = shown[::-1]

    width, height = SIZE
    ax = new_axes(ax, (width, height * max(0.65, min(1.5, 0.45 + 0.09 * shown.size))))
    draw_cells(
        ax,
        100 * np.asarray(witness_map.probability_edges),
        100 * value[shown],
        significant[shown],
        count[shown],
        "← rarer than predicted · more frequent →  (% points)",
    )
    # A dollar in a name is no formula.
    ticks = np.arange(shown.size) + 0.5
    ax.set_yticks(ticks, [names[labels[row]] for row in shown], parse_math=False)
    ax.tick_params(axis="y", labelsize=TICK if shown.size <= _MOST_ROWS / 2 else NOTE)
    words(ax, title, "predicted probability of the class (%)", "")
    return ax
