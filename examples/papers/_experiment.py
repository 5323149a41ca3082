"""What all experiments share: options, progress, and how their figures look."""

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Of Okabe and Ito, told apart by colour-blind readers as well; of different lightness in print.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK = "#0072B2", "#D55E00", "#CC79A7"

_START = time.perf_counter()


def arguments(description: str, **files: str) -> argparse.Namespace:
    """Options `quick` and `figures`, a folder that exists, and required `files` with their help."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small, and nothing checked")
    parser.add_argument("--figures", type=pathlib.Path, metavar="FOLDER")
    for name, words in files.items():
        parser.add_argument(name, type=pathlib.Path, help=words)
    args = parser.parse_args()
    if args.figures is None:
        args.figures = pathlib.Path("quick-figures" if args.quick else "figures")
    args.figures.mkdir(parents=True, exist_ok=True)
    return args


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """In Markdown."""
    print(f"\n| {' | '.join(header)} |\n{'|---' * len(header)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def mean_and_error(values: np.ndarray) -> str:
    """With the standard error of the mean."""
    return f"{values.mean():.3g} ± {values.std(ddof=1) / len(values) ** 0.5:.2g}"


def progress(done: str) -> None:
    """One line on stderr, so that stdout holds nothing but tables."""
    print(f"{time.perf_counter() - _START:7.1f} s  {done}", file=sys.stderr, flush=True)


def seconds(function: Callable, *args, at_least: float) -> float:
    """The least time of a call, of as many as fit into `at_least` seconds."""
    jax.block_until_ready(function(*args))
    times, stop = [], time.perf_counter() + at_least
    while not times or time.perf_counter() < stop:
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def print_seconds(published: dict, ours: dict) -> None:
    """A table of seconds, published by d and name and ours by d, n and name, for the largest n."""
    n = max(n for times in ours.values() for n in times)
    rows = [
        [f"d = {d}, {name}", f"{published[d][name]:.2g}", f"{value:.2g}"]
        for d, times in ours.items()
        for name, value in times[n].items()
    ]
    print_table(["least time [s]", "published, n = 1024", f"ours, n = {n}"], rows)


def panels(n_rows: int, n_columns: int, size: tuple[float, float] = (3.6, 2.8), **kwargs):
    """A figure and its axes ``[n_rows, n_columns]``, each of `size` inches."""
    width, height = size
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **kwargs)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend_below(figure: Figure, axes: Axes, n_columns: int) -> None:
    """One legend for all panels: that of `axes`."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=n_columns)


def save(figure: Figure, folder: pathlib.Path, name: str) -> None:
    figure.savefig(folder / name, dpi=110, pil_kwargs={"optimize": True})
    progress(f"figure {folder / name}")
