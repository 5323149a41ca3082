"""Level and power of tests of censored lifetimes: ``python -m benchmarks.survival``.

    python -m benchmarks.survival          # all; some 20 minutes on one idle core
    python -m benchmarks.survival --quick  # few data sets, to see that all run
    python -m benchmarks.survival --only   # none: the page, from results there are

It writes `SURVIVAL.md` and `survival.json` into `benchmarks/`, or into the folder ``--output``.
Results are kept after every case.
"""

import argparse
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.harness import ROOT
from benchmarks.works.survival import ERRORS, FEW_EVENTS, LEVELS, SHARES, TESTS, Case, rejected

LEVEL, N_RESAMPLES, ROWS, POWER_ROWS = 0.05, 199, (50, 400), 400
N_DATA_SETS = {"level": 300, "power": 200}
_QUICK = 4

show = functools.partial(print, flush=True)


def cases() -> dict[str, tuple[str, Case, int]]:
    """The chapter, the case and the number of rows by their names."""
    found = {}
    for n in ROWS:
        for name, case in (LEVELS | {"10 events": FEW_EVENTS[n]}).items():
            found[f"{name}, n = {n}"] = "level", case, n
    for error, options in ERRORS.items():
        for share in SHARES:
            case = Case(share, **options)
            found[f"{error}, {share:.0%} censored"] = "power", case, POWER_ROWS
    return found


def page(results: Mapping[str, Any]) -> str:
    known = {name: results[name] for name in cases() if name in results}
    of_level = [r for r in known.values() if r["chapter"] == "level"]
    excess = {
        test: max(((r["rates"][test] - LEVEL) / _error(r) for r in of_level), default=0.0)
        for test in TESTS
    }
    highest = "; ".join(f"{words}: {excess[test]:.1f}" for test, words in TESTS.items())
    quick = " (quick: fewer data sets)" if results.get("quick") else ""
    parts = [
        "# Tests of censored lifetimes",
        "Made by `python -m benchmarks.survival`. Percentages of simulated data sets rejected at "
        f"level {LEVEL}. Predictions are Weibull distributions with shape 1.5 and scales that "
        f"vary by a factor of 1.65 up and down. Censoring times are also Weibull. {N_RESAMPLES} "
        "resamples. All cases use the same random numbers, so their rates are dependent.",
        "* `calibration_test` with `IntervalCensored.right_censored`: wild bootstrap of rows; "
        "with `censored_at` it is exact.\n"
        "* D-calibration: `d_calibration`, 10 bins (Haider et al. 2020).\n"
        "* A-calibration: the sum of (O - E)² / E over 10 cells of U = F(y), with 10 degrees of "
        "freedom. O is the number of events in a cell, and E the sum of the cumulative hazards "
        "of U over rows at risk there, the same in all cells. This is our reading of the test of "
        "Akritas (1988) that Simonsen and Waagepetersen (2025) propose; their program was not "
        "run.\n"
        "* One-sample log-rank: the same test with one cell.",
        f"## Level, {N_DATA_SETS['level']} data sets",
        _table("level", known),
        f"Highest rate minus level, in standard errors. {highest}.",
        f"## Power, n = {POWER_ROWS}, {N_DATA_SETS['power']} data sets",
        _table("power", known),
        f"Device: {results.get('device', '')}{quick}.",
    ]
    return "\n\n".join(parts) + "\n"


def _error(result: Mapping[str, Any]) -> float:
    return float(np.sqrt(LEVEL * (1 - LEVEL) / result["n_data_sets"]))


def _table(chapter: str, results: Mapping[str, Any]) -> str:
    header = ["case", "events", *TESTS.values()]
    rows = [
        [name, f"{r['events']:.0f}", *(f"{100 * r['rates'][test]:.1f}" for test in TESTS)]
        for name, r in results.items()
        if r["chapter"] == chapter
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * 7, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=("level", "power"))
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    folder = ROOT / ("build/benchmarks" if options.quick else "benchmarks")
    folder = options.output or folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "survival.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results |= {"device": jax.devices()[0].device_kind, "quick": options.quick}
    for name, (chapter, case, n) in cases().items():
        if options.only is not None and chapter not in options.only:
            continue
        n_data_sets = _QUICK if options.quick else N_DATA_SETS[chapter]
        found = rejected(case, n, n_data_sets, N_RESAMPLES, LEVEL)
        results[name] = {"chapter": chapter, "n_data_sets": n_data_sets, **found}
        show(name, results[name])
        file.write_text(json.dumps(results, indent=1))
    (folder / "SURVIVAL.md").write_text(page(results))


if __name__ == "__main__":
    main()
