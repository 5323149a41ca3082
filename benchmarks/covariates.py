"""Level and power of `calibration_test` with covariates: ``python -m benchmarks.covariates``.

    python -m benchmarks.covariates               # all; an hour and a half on one idle core
    python -m benchmarks.covariates --quick       # few data sets, to see that all run
    python -m benchmarks.covariates --only normal # one chapter; none: the page, from old results

It writes `COVARIATES.md` and `covariates.json` into `benchmarks/`, or into the folder ``--output``.
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
from benchmarks.works.covariates import (
    ERRORS,
    TESTS,
    Case,
    events,
    normal,
    pvalues,
    simulation,
)

LEVEL, N_RESAMPLES = 0.05, 199
DIMENSIONS = 1, 5, 20, 50
#: How many data sets there are with so many columns.
N_DATA_SETS, _QUICK = {1: 200, 5: 200, 20: 100, 50: 50}, 4
CHAPTERS = {
    "normal": "Normal forecasts",
    "events": "Probabilities of events",
    "simulation": "Posterior or prior",
}

show = functools.partial(print, flush=True)


def cases(chapter: str) -> dict[tuple[str, int], Case]:
    """The cases of a chapter by the name of the error and the number of columns."""
    if chapter == "normal":
        return {
            (name, d): normal(error, d)
            for d in DIMENSIONS
            for name, error in ERRORS.items()
            if d > 1 or "x2" not in name
        }
    if chapter == "events":
        errors = {"none": 0.0, "logit 0.4 x1 is missing": 0.4}
        return {
            (name, d): events(strength, d) for d in DIMENSIONS for name, strength in errors.items()
        }
    given = {
        "the posterior": "posterior",
        "the prior, normal": "prior",
        "the prior, 20 draws of each row": "samples",
    }
    return {(name, 1): simulation(kind) for name, kind in given.items()}


def tests_of(chapter: str, d: int) -> list[str]:
    """What is measured with d columns."""
    if chapter == "simulation":
        return ["covariates", "predictions"]
    return list(TESTS) if chapter == "normal" and d == 5 else ["covariates"]


def page(results: Mapping[str, Any]) -> str:
    quick = " (quick: fewer data sets)" if results.get("quick") else ""
    parts = [
        "# Tests with covariates",
        "Made by `python -m benchmarks.covariates`. Rejection rates of `calibration_test` at "
        f"level {LEVEL}, with {N_RESAMPLES} draws. Each rate is of 200 data sets of 500 rows (100 "
        "data sets with 20 columns, 50 with 50). Standard errors are 0.015 near 0.05, and at "
        "most 0.035 (0.05, 0.07). The d columns are independent and standard normal; the errors "
        'of the predictions depend on one or two of them. "without" uses only predictions and '
        "targets; `segment_test` cuts columns at their quartiles.",
    ]
    for chapter in filter(results.__contains__, CHAPTERS):
        parts += [f"## {CHAPTERS[chapter]}", _table(results[chapter])]
        if chapter == "simulation":
            parts.append(
                "A parameter with distribution N(0, 1), and an observation with correlation 0.2 "
                "to it. Rows are simulations, and the covariate is the observation. The forecast "
                "is the posterior or the prior. The prior is also calibrated, but not given the "
                "observation."
            )
    parts.append(f"Device: {results.get('device', '')}{quick}.")
    return "\n\n".join(parts) + "\n"


def _table(results: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each error, a column for each test and number of columns."""
    every = {name: json.loads(name) for name in results}
    errors = list(dict.fromkeys(error for error, _ in every.values()))
    dimensions = sorted({d for _, d in every.values()})
    shown = [
        (test, d)
        for test in TESTS
        for d in dimensions
        if any(test in results[name] for name, (_, of) in every.items() if of == d)
    ]
    header = ["error", *(f"{TESTS[test]}, d = {d}" for test, d in shown)]
    rows = [
        [error, *(_cell(results.get(json.dumps([error, d]), {}).get(test)) for test, d in shown)]
        for error in errors
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows])


def _cell(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=tuple(CHAPTERS))
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    folder = ROOT / ("build/benchmarks" if options.quick else "benchmarks")
    folder = options.output or folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "covariates.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results |= {"device": jax.devices()[0].device_kind, "quick": options.quick}
    for chapter in CHAPTERS if options.only is None else options.only:
        for name, case in cases(chapter).items():
            n_data_sets = _QUICK if options.quick else N_DATA_SETS[name[1]]
            found = pvalues(case, n_data_sets, N_RESAMPLES, tests_of(chapter, name[1]))
            # A p-value of single precision may be an ulp above the level that it is.
            rates = {test: float(np.mean(p <= LEVEL + 1e-6)) for test, p in found.items()}
            results.setdefault(chapter, {})[json.dumps(name)] = rates
            show(name, rates)
            file.write_text(json.dumps(results, indent=1))
    (folder / "COVARIATES.md").write_text(page(results))


if __name__ == "__main__":
    main()
