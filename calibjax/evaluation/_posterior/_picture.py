"""The histograms of the ranks of several parameters; imported on use, as it needs matplotlib."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from calibjax.curves import pit_curve
from calibjax.distributions import Empirical
from calibjax.plot import NotebookFigure, SettledLayout, pit

_IN_A_ROW = 3


def histograms(rows: Mapping[str, tuple[np.ndarray, np.ndarray]], level: float) -> NotebookFigure:
    """One histogram for each parameter, of true values ``[n]`` and draws ``[n, S]``."""
    if not rows:
        raise ValueError("plot needs the rows of a check that check_posterior has made, got none.")
    n_across = min(len(rows), _IN_A_ROW)
    n_down = -(-len(rows) // n_across)
    size = 3.3 * n_across, 2.6 * n_down
    figure = NotebookFigure(figsize=size, dpi=200, facecolor="white", layout=SettledLayout())
    for number, (name, (true, drawn)) in enumerate(rows.items()):
        drawn_as: Any = drawn
        n_bins = min(20, drawn.shape[1] + 1)
        key = jax.random.fold_in(jax.random.key(0), number)
        curve = pit_curve(key, Empirical(drawn_as), true, n_bins=n_bins, confidence_level=1 - level)
        ax = pit(curve, ax=figure.add_subplot(n_down, n_across, number + 1))
        ax.set_title(name, fontsize=ax.xaxis.label.get_fontsize(), loc="left")
    return figure
