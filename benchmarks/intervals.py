"""Coverage and width of confidence intervals for the SKCE: ``python -m benchmarks.intervals``.

    python -m benchmarks.intervals          # all, some ten minutes
    python -m benchmarks.intervals --quick  # few data sets, only to see that all run

It writes `INTERVALS.md` into `benchmarks/`, or into `build/benchmarks/` with ``--quick``.
"""

import argparse
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import ROOT
from benchmarks.works.intervals import (
    DATA_SETS,
    FAMILIES,
    KERNELS,
    LEVELS,
    N_RESAMPLES,
    cases,
    coverage,
)

show = functools.partial(print, flush=True)

#: By (family, kernel, n, strength): what `coverage` returns.
Results = Mapping[tuple[str, str, int, str], Mapping[str, Any]]


def shortfall(rate: float, level: float, n_data_sets: int) -> float:
    """By how many standard errors a rate is below its level."""
    return float((level - rate) / np.sqrt(level * (1 - level) / n_data_sets))


def worst(results: Results, name: str, kind: str, levels: Sequence[float]) -> float:
    """The largest shortfall of all rates of an interval."""
    return max(
        shortfall(rate, level, result["n_data_sets"])
        for result in results.values()
        for rate, level in zip(result[name][kind], levels, strict=True)
    )


def rates(result: Mapping[str, Any]) -> str:
    return " / ".join(f"{100 * rate:.0f}" for rate in result["coverage"])


def line(strength: str, result: Mapping[str, Any]) -> str:
    names = "ours", "Hájek", "blocks"
    cells = [strength, f"{result['skce']:.2g}"]
    cells += [rates(result[name]) for name in names]
    cells += [f"{result[name]['width']:.2f}" for name in (*names, "free")]
    return f"| {' | '.join(cells)} |"


def table(results: Results, family: str, kernel: str, n: int) -> str:
    found = {s: r for (f, k, m, s), r in results.items() if (f, k, m) == (family, kernel, n)}
    header = (
        "| strength | SKCE | covers | Hájek covers | blocks cover | width | Hájek | blocks | free |"
    )
    lines = [line(strength, result) for strength, result in found.items()]
    return "\n".join(
        [f"**{family}, {kernel} kernel, n = {n}**\n", header, "|---" * 9 + "|", *lines]
    )


def page(results: Results, minutes: float) -> str:
    upper = [(1 + level) / 2 for level in LEVELS]
    ours, certificate, hajek, blocks = (
        worst(results, name, kind, levels)
        for name, kind, levels in (
            ("ours", "coverage", LEVELS),
            ("ours", "certificate", upper),
            ("Hájek", "coverage", LEVELS),
            ("blocks", "coverage", LEVELS),
        )
    )
    summary = [
        f"* `skce_confidence_interval`: the lowest rate is {ours:.1f} standard errors below its "
        f"level; its upper end alone, at the levels 95 % and 97.5 %, {certificate:.1f}.",
        f"* Normal interval with the Hájek standard error: {hajek:.0f}.",
        f"* Normal interval of blocks: {blocks:.0f}.",
    ]
    sets = ", ".join(f"{size} for n = {n}" for n, size in DATA_SETS.items())
    parts = [
        "# Confidence intervals for the SKCE",
        "Made by `python -m benchmarks.intervals`. Percentages of data sets whose intervals at "
        "90 % and 95 % contain the SKCE, and median widths at 95 %. Predictions are drawn from "
        "200, so that the SKCE is known; a part of all targets follows another law, as many as "
        "give the SKCE of a row. SKCE and widths are in units of t/n, where t = E h_ii: the mean "
        "squared error of a mean of n functions. A wide kernel has 4 times the default "
        "lengthscale between predictions and few large eigenvalues, a narrow one has 1/8 of it "
        "and many.",
        "*Hájek* is estimate ± z times the `standard_error` of `asymptotic_skce_test`, *blocks* "
        "the interval of `asymptotic_block_skce_test` with blocks of √n rows, both cut off at 0. "
        'They are shorter where they do not hold. *free* is `method="distribution_free"`, '
        "which contains the SKCE in all cases.",
        "\n".join(summary),
        f"The number of data sets is {sets}; {N_RESAMPLES} resamples; {minutes:.0f} minutes.",
    ]
    for n in DATA_SETS:
        parts += [f"## n = {n}"]
        parts += [table(results, f, k, n) for f in FAMILIES for k in KERNELS]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few data sets")
    args = parser.parse_args()
    folder = ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    start, results = time.perf_counter(), {}
    for case in cases():
        if args.quick and case[2] > 50:
            continue
        found = coverage(*case, 5 if args.quick else DATA_SETS[case[2]])
        if found is not None:
            results[case] = found
            show(*case, line(case[-1], found))
    (folder / "INTERVALS.md").write_text(page(results, (time.perf_counter() - start) / 60))
    show(f"\n{folder / 'INTERVALS.md'}")


if __name__ == "__main__":
    main()
