"""How often the aggregated test rejects calibrated models: ``python -m benchmarks.levels``.

    python -m benchmarks.levels                       # all; minutes on a GPU, hours on a CPU
    python -m benchmarks.levels --quick               # few data sets, only to see that all run
    python -m benchmarks.levels --only normal Poisson # some families, and the others as they were
    python -m benchmarks.levels --only                # none: the page, from results that there are

It writes `LEVELS.md`, `levels.json` and `figures/levels.png` into `benchmarks/`, or into the folder
``--output``.  Results are kept after every case; only the page needs matplotlib.
"""

import argparse
import functools
import json
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.harness import ROOT
from benchmarks.works.levels import DATA_SETS, FAMILIES, cases, levels

N_RESAMPLES = 99
LEVELS = (0.01, 0.05)
_QUICK = 200

show = functools.partial(print, flush=True)

#: Of one family and n: how often each p-value 1/(B+1), …, 1 was found, and seconds.
Result = Mapping[str, Any]


def run(family: str, n: int, n_data_sets: int) -> Result:
    start = time.perf_counter()
    pvalues = levels(family, n, n_data_sets, N_RESAMPLES)
    ranks = np.rint(pvalues * (N_RESAMPLES + 1)).astype(int)
    return {
        "counts": np.bincount(ranks, minlength=N_RESAMPLES + 2)[1:].tolist(),
        "seconds": time.perf_counter() - start,
        "device": jax.devices()[0].device_kind,
    }


def distribution(result: Result) -> np.ndarray:
    """P(p <= k / (B + 1)) for k = 1, …, B + 1."""
    counts = np.asarray(result["counts"])
    return np.cumsum(counts) / counts.sum()


def rate(result: Result, level: float) -> float:
    """How often p <= level."""
    return float(distribution(result)[round(level * (N_RESAMPLES + 1)) - 1])


def excess(result: Result, level: float) -> float:
    """By how many standard errors the rate exceeds the level."""
    error = np.sqrt(level * (1 - level) / np.sum(result["counts"]))
    return float((rate(result, level) - level) / error)


def page(results: Mapping[str, Mapping[str, Result]]) -> str:
    """The table of rejection rates."""
    all_results = [result for of_family in results.values() for result in of_family.values()]
    worst = [max(excess(result, level) for result in all_results) for level in LEVELS]
    devices = ", ".join(sorted({result["device"] for result in all_results}))
    parts = [
        "# Level of `aggregated_skce_test`",
        "Made by `python -m benchmarks.levels`. Percentages of data sets from calibrated models "
        f"that are rejected at levels 1 % and 5 %, with the default kernels and {N_RESAMPLES} "
        "draws. Targets are drawn from the predictions, or, for samples, from the distribution "
        "of the samples. If events are rare, many simulated data sets equal the observed one, "
        "and the test rejects less often than the level.",
        "\n".join(
            f"* Level {100 * level:g} %: the highest rate is {z:.1f} standard errors above the "
            f"level, of {len(all_results)} rates."
            for level, z in zip(LEVELS, worst, strict=True)
        ),
        "\n".join(
            [
                f"| predictions | {' | '.join(f'n = {n}' for n in DATA_SETS)} |",
                "|---" * (1 + len(DATA_SETS)) + "|",
                *(
                    f"| {family} | {' | '.join(cell(of_family.get(str(n))) for n in DATA_SETS)} |"
                    for family, of_family in results.items()
                ),
            ]
        ),
        "Smallest number of data sets of a column: "
        + ", ".join(f"{sets(results, n)} for n = {n}" for n in DATA_SETS)
        + f". Device: {devices}.",
        "Each curve is the distribution of the p-value. It is on or below the diagonal, up to "
        "random error.",
        "![Distribution of p-values](figures/levels.png)",
    ]
    return "\n\n".join(parts) + "\n"


def cell(result: Result | None) -> str:
    return "" if result is None else " / ".join(f"{100 * rate(result, a):.1f}" for a in LEVELS)


def sets(results: Mapping[str, Mapping[str, Result]], n: int) -> int:
    """The smallest number of data sets of any family."""
    found = [np.sum(f[str(n)]["counts"]) for f in results.values() if str(n) in f]
    return int(min(found, default=0))


def draw(results: Mapping[str, Mapping[str, Result]], path: pathlib.Path) -> None:
    """The distribution of the p-value, one panel for each family."""
    # Here, because machines that only compute may have no matplotlib.
    from matplotlib.figure import Figure

    from benchmarks.figures import STYLES, save

    n_columns = 4
    n_rows = -(-len(results) // n_columns)
    figure = Figure(figsize=(2.6 * n_columns, 2.6 * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    grid = np.arange(N_RESAMPLES + 2) / (N_RESAMPLES + 1)
    colors = {n: color for n, (color, _) in zip(DATA_SETS, STYLES, strict=False)}
    for ax, (family, of_family) in zip(axes.flat, results.items(), strict=False):
        ax.plot([0, 1], [0, 1], color="0.7", linewidth=3)
        for n, result in of_family.items():
            ax.step(
                grid, [0, *distribution(result)], where="post", linewidth=1, color=colors[int(n)]
            )
        ax.set_title(family, fontsize=9)
        ax.set_aspect("equal")
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(results) :]:
        ax.set_visible(False)
    lines = [
        axes[0, 0].plot([], [], color=color, label=f"n = {n}")[0] for n, color in colors.items()
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines))
    figure.supxlabel("p")
    figure.supylabel("fraction of p-values up to p")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few data sets")
    parser.add_argument("--only", nargs="*", choices=FAMILIES, metavar="FAMILY")
    parser.add_argument("--rows", nargs="*", type=int, choices=DATA_SETS, metavar="N")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    folder = args.output or ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "levels.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for family, n in cases():
        if family in (FAMILIES if args.only is None else args.only) and n in (
            args.rows or DATA_SETS
        ):
            found = run(family, n, min(DATA_SETS[n], _QUICK) if args.quick else DATA_SETS[n])
            results.setdefault(family, {})[str(n)] = found
            show(f"{family}, n = {n}: {cell(found)} %, {found['seconds']:.0f} s")
            path.write_text(json.dumps(results) + "\n")
    ordered = {family: results[family] for family in FAMILIES if family in results}
    draw(ordered, folder / "figures" / "levels.png")
    (folder / "LEVELS.md").write_text(page(ordered))
    show(f"\n{folder / 'LEVELS.md'}")


if __name__ == "__main__":
    main()
