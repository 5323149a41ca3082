"""The figure: power in each scenario, one panel for each setting."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from benchmarks.figures import STYLES, legend_below
from benchmarks.power.columns import LEVEL
from benchmarks.power.one_set_of_draws import GRID
from benchmarks.power.report import Rates, best
from benchmarks.power.settings import SETTINGS

#: What is shown of all columns, in the order of the styles.
_SERIES = (
    "aggregated",
    "previous default",
    "best of the grid",
    "block",
    "CME",
    "ECE",
    "T-Cal, adaptive",
)
_COLUMNS = 3


def _rate(rates: Rates, series: str) -> float | None:
    return best(rates, GRID)[1] if series == "best of the grid" else rates.get(series)


def draw(results: Mapping[str, Any]) -> Figure:
    results = {name: result for name, result in results.items() if result["members"]}
    n_rows = max(1, -(-len(results) // _COLUMNS))
    figure = Figure(figsize=(4.6 * _COLUMNS, 3.2 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, _COLUMNS, squeeze=False).ravel()
    for ax in axes[len(results) :]:
        ax.set_axis_off()
    for ax, (name, result) in zip(axes, results.items(), strict=False):
        scenarios = list(result["rates"])
        for k, (series, (color, marker)) in enumerate(zip(_SERIES, STYLES, strict=True)):
            # One below the other, so that equal powers are seen.
            below = (k - (len(_SERIES) - 1) / 2) * 0.1
            points = [
                (rate, -i - below)
                for i, rates in enumerate(result["rates"].values())
                if (rate := _rate(rates, series)) is not None
            ]
            # A series that a setting lacks stands in the legend all the same.
            x, y = zip(*points, strict=True) if points else ((), ())
            ax.plot(x, y, marker, color=color, markersize=5, alpha=0.8, label=series)
        ax.axvline(LEVEL, color="0.6", linewidth=1, zorder=0)
        ax.set_yticks([-i for i in range(len(scenarios))], scenarios)
        ax.set_xlim(-0.03, 1.03)
        ax.set_title(f"{SETTINGS[name].title}, n = {result['n']}", loc="left", fontsize=10)
        ax.grid(alpha=0.3, axis="x")
        for i in range(1, len(scenarios)):
            ax.axhline(0.5 - i, color="0.9", linewidth=1, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[max(0, len(results) - _COLUMNS) : len(results)]:
        ax.set_xlabel("fraction of rejected data sets")
    legend_below(figure, axes[0], len(_SERIES))
    return figure
