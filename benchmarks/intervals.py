"""Coverage and width of confidence intervals: ``python -m benchmarks.intervals``.

    python -m benchmarks.intervals                # all, some twenty minutes
    python -m benchmarks.intervals --quick        # few data sets, only to see that all run
    python -m benchmarks.intervals --rows 50 300  # some numbers of rows, others as they were
    python -m benchmarks.intervals --only few means  # some chapters, others as they were

It writes `INTERVALS.md` and `intervals.json` into `benchmarks/`, or into `build/benchmarks/` with
``--quick``.  Results are kept after every case.
"""

import argparse
import functools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import ROOT
from benchmarks.works import few_rows, means
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

#: By the name of a case: what `coverage` returns.
Results = Mapping[str, Mapping[str, Any]]

_INTERVALS = ("ours", "Hájek", "blocks")


def name(case: Sequence[Any]) -> str:
    return ", ".join(map(str, case))


def worst(results: Results, interval: str, kind: str, levels: Sequence[float]) -> float:
    """By how many standard errors the lowest of all rates of an interval is below its level."""
    return max(
        float((level - rate) / np.sqrt(level * (1 - level) / result["n_data_sets"]))
        for result in results.values()
        for rate, level in zip(result[interval][kind], levels, strict=True)
    )


def cells(result: Mapping[str, Any]) -> list[str]:
    """The SKCE, the rates of all intervals, and their widths."""
    found = [result[x] for x in _INTERVALS]
    rates = [" / ".join(f"{100 * rate:.0f}" for rate in x["coverage"]) for x in found]
    return [f"{result['skce']:.2g}", *rates, *(f"{x['width']:.2f}" for x in found)]


def table(results: Results, family: str, kernel: str, n: int) -> str:
    found = {
        c[-1]: results[name(c)]
        for c in cases()
        if name(c) in results and c[:3] == (family, kernel, n)
    }
    header = "| strength | SKCE | covers | Hájek covers | blocks cover | width | Hájek | blocks |"
    lines = [f"| {' | '.join([s, *cells(result)])} |" for s, result in found.items()]
    title = f"**{family}, {kernel} kernel, n = {n}**\n"
    return "\n".join([title, header, "|---" * 8 + "|", *lines]) if found else ""


def page(results: Results) -> str:
    upper = [(1 + level) / 2 for level in LEVELS]
    ours, hajek, blocks = (worst(results, x, "coverage", LEVELS) for x in _INTERVALS)
    certificate = worst(results, "ours", "certificate", upper)
    sets = ", ".join(f"{size} for n = {n}" for n, size in DATA_SETS.items())
    parts = [
        "# Confidence intervals for the SKCE",
        "Made by `python -m benchmarks.intervals`. Coverage (%) of 90 % and 95 % intervals for "
        "the SKCE, and median widths at 95 %. Predictions are drawn from 200, so that the SKCE "
        "is known. A share of the targets has another distribution; this share determines the "
        "SKCE of a row. SKCE and widths are in units of t/n, the mean squared error of a mean of "
        "n functions, with t = E h_ii. The wide kernel has 4 times the lengthscale of "
        "`product_kernel` on predictions, and few large eigenvalues; the narrow one has 1/8 of "
        "it, and many. The strength is the SKCE: a multiple of t/n, 0.01, or its maximum.",
        "*Hájek* is estimate ± z times the `standard_error` of `asymptotic_skce_test`, *blocks* "
        "the interval of `asymptotic_block_skce_test` with blocks of √n rows, both truncated at "
        "0. They are shorter where they cover too rarely.",
        "\n".join(
            [
                f"* `skce_confidence_interval`: the lowest of {len(LEVELS) * len(results)} rates "
                f"is {ours:.1f} standard errors below its level; for the upper end alone, at "
                f"levels 95 % and 97.5 %, {certificate:.1f}.",
                f"* Normal interval with the Hájek standard error: {hajek:.0f}.",
                f"* Normal interval of blocks: {blocks:.0f}.",
            ]
        ),
        f"The number of data sets is {sets}; {N_RESAMPLES} resamples.",
    ]
    for n in DATA_SETS:
        tables = [table(results, f, k, n) for f in FAMILIES for k in KERNELS]
        parts += [f"## n = {n}", *filter(None, tables)]
    return "\n\n".join(parts) + "\n"


#: Chapters behind the one about many rows: their headings, by the names of `--only`.
CHAPTERS = {"few": "## Few rows", "means": "## Means of scores"}


def chapter(name: str, rates: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A chapter from the rates of misses, by the name of a case and the number of rows."""
    if name == "few":
        text = (
            f"Percentages of {few_rows.DATA_SETS} data sets in which the 95 % interval of "
            "`skce_confidence_interval` lies above | below the SKCE, together at most 5 "
            f"({few_rows.N_RESAMPLES} resamples). `evaluate` warns that intervals may be too "
            "narrow with fewer than 50 rows, or if fewer than ten targets differ from the most "
            "common one, or are expected to differ from the most probable one: if no event "
            "occurred, the data do not show that events are possible."
        )
    else:
        text = (
            f"Percentages of {means.DATA_SETS} data sets in which the 95 % interval in the table "
            "of `evaluate` lies above | below the mean, ideally 5 together. In brackets: the "
            "misses of mean ± 1.96 standard errors. Shares have Wilson's interval, and means "
            "Student's interval, corrected for skewness (Hall 1992). Ten rows of a long-tailed "
            "distribution do not show how large its errors can be, so no interval from them "
            "misses in only 5 %."
        )
    columns = list(next(iter(rates.values())))
    lines = [f"| | {' | '.join(f'n = {n}' for n in columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {case} | {' | '.join(missed(found) for found in by_rows.values())} |"
        for case, by_rows in rates.items()
    ]
    return "\n\n".join([CHAPTERS[name], text, "\n".join(lines)]) + "\n"


def missed(found: Mapping[str, float]) -> str:
    """Misses above and below, and those of the normal interval."""
    shown = f"{100 * found['above']:.1f} \\| {100 * found['below']:.1f}"
    return shown + (f" ({100 * found['normal']:.1f})" if "normal" in found else "")


def measured(name: str, quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    """The rates of misses of all cases of a chapter."""
    work: Any = few_rows if name == "few" else means
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in work.CASES if name == "few" else work.SCORES:
        for n in work.ROWS[:1] if quick else work.ROWS:
            rates = work.misses(case, n, 20 if quick else work.DATA_SETS)
            found.setdefault(case, {})[str(n)] = rates
            show(case, n, rates)
    return found


def chapters_of(text: str) -> dict[str, str]:
    """The parts of a page by the name of the chapter; the first one is called skce."""
    found, name = {"skce": ""}, "skce"
    headings = {heading: name for name, heading in CHAPTERS.items()}
    for line in text.splitlines(keepends=True):
        name = headings.get(line.rstrip(), name)
        found[name] = found.get(name, "") + line
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few data sets")
    parser.add_argument("--rows", nargs="*", type=int, choices=DATA_SETS, metavar="N")
    parser.add_argument("--only", nargs="*", choices=["skce", *CHAPTERS], metavar="CHAPTER")
    args = parser.parse_args()
    folder = ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "intervals.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    only = args.only or (["skce"] if args.rows else ["skce", *CHAPTERS])
    rows = args.rows or ([min(DATA_SETS)] if args.quick else DATA_SETS)
    to_page = folder / "INTERVALS.md"
    chapters = chapters_of(to_page.read_text() if to_page.exists() else "")
    chapters |= {
        name: chapter(name, measured(name, args.quick)) for name in CHAPTERS if name in only
    }
    for case in cases():
        if case[2] in rows and "skce" in only:
            start = time.perf_counter()
            found = coverage(*case, 5 if args.quick else DATA_SETS[case[2]])
            if found is not None:
                results[name(case)] = found
                path.write_text(json.dumps(results) + "\n")
                show(name(case), *cells(found), f"{time.perf_counter() - start:.0f} s", sep=" | ")
    if "skce" in only:
        chapters["skce"] = page(results)
    order = [chapters[name].rstrip("\n") for name in ("skce", *CHAPTERS) if chapters.get(name)]
    to_page.write_text("\n\n".join(order) + "\n")
    show(f"\n{to_page}")


if __name__ == "__main__":
    main()
