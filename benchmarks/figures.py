"""Figures of the rows: log-log, one colour and marker for each series."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.rows import Row

#: Of Okabe and Ito, told apart by colour-blind readers as well, each with a marker.
STYLES = (
    ("#000000", "o"),
    ("#0072B2", "s"),
    ("#D55E00", "^"),
    ("#009E73", "D"),
    ("#E69F00", "v"),
    ("#CC79A7", "P"),
    ("#56B4E9", "X"),
)

#: table -> function of its rows that returns a figure.
FIGURES: dict[str, Callable[[Sequence[Row]], Figure]] = {}

#: x and y of a series.
Points = tuple[Sequence[float], Sequence[float]]


def figure_of(table: str):
    def register(function: Callable[[Sequence[Row]], Figure]):
        FIGURES[table] = function
        return function

    return register


def panels(n_columns: int) -> tuple[Figure, Sequence[Axes]]:
    # No wider than a page of text, where letters would become too small.
    figure = Figure(figsize=(min(4.2 * n_columns, 9.4), 3.8), layout="constrained")
    axes = figure.subplots(1, n_columns, squeeze=False)[0]
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw(ax: Axes, series: Mapping[str, Points], xlabel: str, ylabel: str) -> None:
    for (name, points), (color, marker) in zip(series.items(), STYLES, strict=False):
        ax.loglog(*points, color=color, marker=marker, markersize=5, label=name)
    ax.set(xlabel=xlabel, ylabel=ylabel)


def legend_below(figure: Figure, ax: Axes, n_columns: int) -> None:
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=n_columns)


@figure_of("cost")
def cost(rows: Sequence[Row]) -> Figure:
    figure, axes = panels(3)
    names = dict.fromkeys(name for row in rows for name in row["points"])

    def series(kept: Sequence[Row], x: str, y: str) -> dict[str, Points]:
        points = {
            name: [(row[x], row["points"][name][y]) for row in kept if name in row["points"]]
            for name in names
        }
        return {name: tuple(zip(*sorted(xy), strict=True)) for name, xy in points.items() if xy}

    of_n = [row for row in rows if row["m"] == 10]
    n = next(row["n"] for row in rows if row["m"] != 10)
    of_m = [row for row in rows if row["n"] == n]
    draw(axes[0], series(of_n, "n", "seconds"), "rows n (m = 10 classes)", "time [s]")
    draw(axes[1], series(of_n, "n", "megabytes"), "rows n (m = 10 classes)", "peak memory [MB]")
    draw(axes[2], series(of_m, "m", "seconds"), f"classes m (n = {n} rows)", "time [s]")
    legend_below(figure, axes[0], 5)
    return figure


@figure_of("training")
def training(rows: Sequence[Row]) -> Figure:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure, axes = panels(len(networks))
    for ax, network in zip(axes, networks, strict=True):
        kept = [row for row in rows if row["network"] == network]
        batches = [row["batch"] for row in kept]
        labels = {
            "step without penalty": "without [ms]",
            "step with penalty": "with [ms]",
            "penalty and its gradient alone": "penalty alone [ms]",
        }
        series = {label: (batches, [row[key] for row in kept]) for label, key in labels.items()}
        draw(ax, series, "batch [rows]", "time of a step [ms]")
        ax.set_title(network)
        ax.set_xticks(batches, [str(batch) for batch in batches], minor=False)
        ax.minorticks_off()
    legend_below(figure, axes[0], 3)
    return figure


@figure_of("random_features")
def random_features(rows: Sequence[Row]) -> Figure:
    figure, (ax,) = panels(1)
    figure.set_size_inches(6, 5)
    rows = [row for row in rows if "n" in row]
    series: dict[str, Any] = {}
    for name in dict.fromkeys(row["estimate"] for row in rows):
        kept = [row for row in rows if row["estimate"] == name]
        keys = "time [ms]", "root mean squared error"
        series[name] = tuple([row[key] for row in kept] for key in keys)
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    ylabel = f"root mean squared error of the SKCE, n = {', '.join(map(str, sizes))}"
    draw(ax, series, "time of an estimate [ms]", ylabel)
    legend_below(figure, ax, 3)
    return figure


def save(figure: Figure, path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, pil_kwargs={"optimize": True})


@figure_of("exact_test_cost")
def exact_test_cost(rows: Sequence[Row]) -> Figure:
    """Seconds against the number of rows, a line for each number of kernels."""
    figure, (ax,) = panels(1)
    series = {}
    for n_kernels in sorted({row["K"] for row in rows}):
        chosen = [row for row in rows if row["K"] == n_kernels]
        name = f"{n_kernels} kernel{'s' if n_kernels > 1 else ''}"
        series[name] = [row["n"] for row in chosen], [row["ours"] for row in chosen]
    draw(ax, series, "number of predictions", "seconds")
    ax.set(title="Exact test, 10 classes, 199 draws")
    ax.legend()
    return figure
