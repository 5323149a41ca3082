"""Level and power of tests of rows that depend on each other: ``python -m benchmarks.dependence``.

    python -m benchmarks.dependence                # all; some 40 minutes on one idle core
    python -m benchmarks.dependence --quick        # few data sets, to see that all run
    python -m benchmarks.dependence --only few     # one chapter; none: the page, from old results

It writes `DEPENDENCE.md` and `dependence.json` into `benchmarks/`, or into the folder ``--output``.
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
from benchmarks.rates import cell, rates_of
from benchmarks.works.dependence import (
    TESTS,
    Case,
    Error,
    ahead,
    clusters,
    events,
    hospitals,
    hub,
    measured,
    of_units,
    stations,
    sums,
)

LEVELS, N_RESAMPLES = (0.05, 0.01), 199
#: How many data sets there are, and how many of them the other tests see.
N_DATA_SETS = {"level": (1000, 200), "power": (200, 200), "few": (200, 0)}
_QUICK = (4, 4)
BIAS, SPREAD, TOO_SURE = Error(bias=0.25), Error(spread=1.25), Error(temperature=1.5)

show = functools.partial(print, flush=True)


def _steps(n: int) -> str:
    return f"{n} {'step' if n == 1 else 'steps'}"


def level_cases() -> dict[str, Case]:
    found = {}
    for horizon in (1, 4, 12):
        for n in (200, 400, 2000):
            found[f"{_steps(horizon)} ahead, {n} times"] = ahead(horizon, n)
    for n in (400, 2000):
        found[f"sums of 12 steps, {n} times"] = sums(12, n)
    found["15 stations, 60 days"] = stations(15, 60, 1, 0.5)
    found["30 stations, 60 days, 3 days ahead"] = stations(30, 60, 3, 0.5)
    for kind in ("location", "spread", "class"):
        for n_clusters in (10, 20, 80):
            for share in (0.1, 0.5):
                name = f"{n_clusters} clusters, correlation {share} in {kind}"
                found[name] = clusters(kind, 400, n_clusters, share)
    for expected in (0.6, 3, 10):
        found[f"{expected:g} events, independent rows"] = events(expected, 500)
        found[f"{expected:g} events, 25 clusters"] = events(expected, 500, 25)
    return found


def power_cases() -> dict[str, tuple[str, Case]]:
    """The calibrated case that each is beside, and the case."""
    found = {}
    for n_clusters in (20, 80):
        of = f"{n_clusters} clusters, correlation 0.5 in location"
        for words, error in (("bias 0.25", BIAS), ("deviations 1.25 times as large", SPREAD)):
            found[f"{of}, {words}"] = of, clusters("location", 400, n_clusters, 0.5, error)
        of = f"{n_clusters} clusters, correlation 0.5 in class"
        found[f"{of}, temperature 1.5"] = of, clusters("class", 400, n_clusters, 0.5, TOO_SURE)
    for horizon in (1, 4):
        of = f"{_steps(horizon)} ahead, 400 times"
        for words, error in (("bias 0.25", BIAS), ("deviations 1.25 times as large", SPREAD)):
            found[f"{of}, {words}"] = of, ahead(horizon, 400, error)
    return found


def few_cases() -> dict[str, Case]:
    """Few stretches of time, and few clusters."""
    found = {}
    errors = {
        "right": None,
        "bias 0.75": Error(bias=0.75),
        "spread 1.5": Error(spread=1.5),
        "spread 0.67": Error(spread=0.67),
    }
    for stretches in (4, 6, 8, 12, 24, 40):
        for words, error in errors.items() if stretches < 40 else [("right", None)]:
            found[f"{stretches} stretches, 5 places, {words}"] = hub(
                stretches, 5, "moving average", error
            )
    for n_places in (1, 20):
        for stretches in (4, 8, 24):
            name = f"{stretches} stretches, {_places(n_places)}, right"
            found[name] = hub(stretches, n_places, "moving average")
    for stretches in (4, 8, 24):
        found[f"{stretches} stretches, 5 places, autoregression, right"] = hub(
            stretches, 5, "autoregression"
        )
    sizes = {
        "8 clusters of 40 to 900": np.linspace(40, 900, 8),
        "12 clusters of 300": np.full(12, 300),
        "12 clusters of 40 to 900": np.linspace(40, 900, 12),
        "20 clusters of 10 to 100": np.linspace(10, 100, 20),
        "50 clusters of 5 to 60": np.linspace(5, 60, 50),
    }
    for words, rows in sizes.items():
        for kind in ("events of 10 %", "numbers"):
            found[f"{words}, {kind}, right"] = hospitals(kind, rows.astype(int), 0.3)
    twelve = sizes["12 clusters of 40 to 900"].astype(int)
    for kind in ("events of 2 %", "events of 20 %", "quantiles", "ensembles"):
        found[f"12 clusters of 40 to 900, {kind}, right"] = hospitals(kind, twelve, 0.3)
    for words in ("12 clusters of 300", "12 clusters of 40 to 900"):
        rows = sizes[words].astype(int)
        found[f"{words}, observed / expected 0.75"] = hospitals("events of 10 %", rows, 0, 0.75)
        found[f"{words}, slope 0.7"] = hospitals("events of 10 %", rows, 0, slope=0.7)
    small = np.linspace(40, 150, 10).astype(int)
    found["10 clusters of 40 to 150, right"] = hospitals("events of 10 %", small, 0)
    found["10 clusters of 40 to 150, observed / expected 0.75"] = hospitals(
        "events of 10 %", small, 0, 0.75
    )
    found["25 clusters of 20, 16 events, right"] = hospitals("events of 2 %", np.full(25, 20), 0)
    found["25 clusters of 20, 16 events, observed / expected 0.75"] = hospitals(
        "events of 2 %", np.full(25, 20), 0, 0.75
    )
    return found


def _places(count: int) -> str:
    return f"{count} {'place' if count == 1 else 'places'}"


def page(results: Mapping[str, Any]) -> str:
    quick = " (quick: fewer data sets)" if results.get("quick") else ""
    beyond = [
        f"{name} ({rate:.3f} at {level})"
        for name, result in results.get("level", {}).items()
        for level in LEVELS
        if (rate := result["rates"]["told"][str(level)]) > level + 3 * _error(result, level)
    ]
    parts = [
        "# Dependent rows",
        "Made by `python -m benchmarks.dependence`. Rejection rates of simulated data sets, with "
        f"{N_RESAMPLES} resamples. Autoregressions have coefficient 0.9, and their forecasts are "
        "perfect. All clusters have the same size, and predictions within a cluster are also "
        'correlated. "in location": errors have this correlation; "in spread": only the sizes of '
        'errors are correlated, not their signs; "in class": one class of ten.',
        "* **with the units**: `calibration_test` with `clusters=`, or `times=` and `horizon=`.\n"
        "* **without them**: the same test, assuming independent rows.\n"
        "* **one row of each unit**: the same test on one row of each cluster or horizon.\n"
        "* **POT, PRIT, PIET**: tests of dependent PIT values by Tesso and Vehtari (2026, "
        "arXiv:2603.02928), which combine p-values of single values by the Cauchy distribution "
        "(our implementation).",
        "## Level",
        f"With the units, {N_DATA_SETS['level'][0]} data sets (standard error 0.007 near 0.05, "
        f"and 0.003 near 0.01); with the other tests, {N_DATA_SETS['level'][1]} of them (0.015).",
        _table(results.get("level", {}), [str(level) for level in LEVELS], "told"),
        "More than three standard errors above the level with the units named: "
        f"{'; '.join(beyond) or 'none'}.",
        f"## Power at 0.05, {N_DATA_SETS['power'][0]} data sets",
        '"exact" is the ideal test: it rejects if the statistic of the test without units '
        "exceeds its 95 % quantile over calibrated data sets with the same dependence.",
        _table(results.get("power", {}), ["0.05"], "exact"),
        f"## Few stretches and few clusters, {N_DATA_SETS['few'][0]} data sets",
        "`calibration_test` with the units, 999 rotations or signs. A stretch is one horizon of "
        "four weeks. Errors of places share 60 % of their variance. They last for the horizon, "
        "or are an autoregression with correlation 0.1 at the horizon. Cluster effects have SD "
        "0.3, in logits or in predicted SDs. Standard errors: 0.015 near 0.05, 0.035 near 0.5.",
        _few_table(results.get("few", {})),
        f"Device: {results.get('device', '')}{quick}.",
    ]
    return "\n\n".join(parts) + "\n"


def _few_table(results: Mapping[str, Any]) -> str:
    header = ["case", "rejected at 0.05", "p above 0.995"]
    rows = [[name, cell(x["rejected"]), cell(x["above"])] for name, x in results.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * 3, *rows])


def _error(result: Mapping[str, Any], level: float) -> float:
    return float(np.sqrt(level * (1 - level) / result["n_data_sets"]))


def _table(results: Mapping[str, Any], levels: list[str], first: str) -> str:
    """A row for each case: the first test at all levels, the others at the first one."""
    shown = {"exact": "exact"} | TESTS if first == "exact" else TESTS
    header, columns = ["case"], []
    for test, words in shown.items():
        for level in levels if test in (first, "redraws") else levels[:1]:
            header.append(f"{words}, {level}" if len(levels) > 1 else words)
            columns.append((test, level))
    rows = [
        [name, *(cell(result["rates"].get(test, {}).get(level)) for test, level in columns)]
        for name, result in results.items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=("level", "power", "few"))
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    folder = ROOT / ("build/benchmarks" if options.quick else "benchmarks")
    folder = options.output or folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "dependence.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results |= {"device": jax.devices()[0].device_kind, "quick": options.quick}
    chapters = ("level", "power", "few") if options.only is None else options.only
    sizes = dict.fromkeys(N_DATA_SETS, _QUICK) if options.quick else N_DATA_SETS

    def keep(chapter: str, name: str, rates: Any, **more: Any) -> None:
        of_chapter = results.setdefault(chapter, {})
        of_chapter[name] = {"n_data_sets": sizes[chapter][0], "rates": rates, **more}
        show(name, rates)
        file.write_text(json.dumps(results, indent=1))

    if "level" in chapters:
        for name, case in level_cases().items():
            found = measured(case, *sizes["level"], N_RESAMPLES)
            critical = float(np.quantile(found["statistic"], 0.95))
            keep("level", name, rates_of(found, TESTS, LEVELS), critical=critical)
    if "power" in chapters:
        for name, (of, case) in power_cases().items():
            found = measured(case, *sizes["power"], N_RESAMPLES)
            beyond = found["statistic"] > results["level"][of]["critical"]
            keep(
                "power",
                name,
                rates_of(found, TESTS, LEVELS) | {"exact": {"0.05": float(np.mean(beyond))}},
            )
    if "few" in chapters:
        of_few = results.setdefault("few", {})
        for name, case in few_cases().items():
            pvalues = of_units(case, sizes["few"][0], 999)
            found = {"rejected": np.mean(pvalues <= 0.0501), "above": np.mean(pvalues > 0.995)}
            of_few[name] = {key: float(x) for key, x in found.items()}
            show(name, of_few[name])
            file.write_text(json.dumps(results, indent=1))
    (folder / "DEPENDENCE.md").write_text(page(results))


if __name__ == "__main__":
    main()
