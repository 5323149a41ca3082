"""Level and power of `compare_calibration`: ``python -m benchmarks.comparison``.

    python -m benchmarks.comparison                       # all; some ten minutes on one idle core
    python -m benchmarks.comparison --quick               # few data sets, to see that all run
    python -m benchmarks.comparison --networks FILE.npz   # and the networks in a file
    python -m benchmarks.comparison --only                # none: the page, from results there are

A file of networks holds one array of softmax rows ``[n, m]`` for each network, by its name, and
`labels` ``[n]``.  It writes `COMPARISON.md` and `comparison.json` into `benchmarks/`, or into the
folder ``--output``.  Results are kept after every case.
"""

import argparse
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import calibjax as cj
from benchmarks.harness import ROOT
from benchmarks.works.comparison import (
    CASES,
    DATA_SETS,
    POWER,
    POWER_DATA_SETS,
    POWER_ROWS,
    pvalues,
)

LEVEL = 0.05
N_RESAMPLES = 199
_QUICK = 20

show = functools.partial(print, flush=True)

#: How many of how many data sets were rejected.
Count = tuple[int, int]


def count(case: Any, n: int, n_data_sets: int) -> Count:
    found = pvalues(case, n, n_data_sets, N_RESAMPLES)
    return int(np.sum(found <= LEVEL)), n_data_sets


def ranking(path: pathlib.Path, n_resamples: int) -> list[dict[str, Any]]:
    """The networks of a file, best first: the best one is compared with all others."""
    with np.load(path) as data:
        targets = data["labels"]
        networks = {name: cj.Categorical(data[name]) for name in data.files if name != "labels"}
    names = list(networks)
    together = cj.Categorical(np.concatenate([networks[name].probs for name in names]))
    kernel = cj.default_kernel(together)
    estimates = {name: float(cj.skce(kernel, networks[name], targets)) for name in names}
    names.sort(key=estimates.__getitem__)
    best, *others = (networks[name] for name in names)
    result = cj.compare_calibration(
        jax.random.key(0), kernel, best, others, targets, n_resamples=n_resamples
    )
    low, high = result.confidence_interval()
    rows: list[dict[str, Any]] = [{"network": names[0], "estimate": float(result.estimates[0])}]
    for k, name in enumerate(names[1:]):
        rows.append(
            {
                "network": name,
                "estimate": float(result.estimates[k + 1]),
                "difference": -float(result.difference[k]),
                "low": -float(high[k]),
                "high": -float(low[k]),
                "pvalue": float(result.pvalue[k]),
            }
        )
    return rows


def rate(found: Count | None) -> str:
    return "" if found is None else f"{100 * found[0] / found[1]:.1f}"


def excess(found: Count) -> float:
    """By how many standard errors the rate exceeds the level."""
    return (found[0] / found[1] - LEVEL) / np.sqrt(LEVEL * (1 - LEVEL) / found[1])


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page(results: Mapping[str, Any]) -> str:
    levels = results.get("levels", {})
    found = [of_n[n] for cases in levels.values() for of_n in cases.values() for n in of_n]
    parts = [
        "# Level and power of `compare_calibration`",
        "Made by `python -m benchmarks.comparison`. Percentages of simulated data sets in which "
        f"two models were found to differ in calibration at level {100 * LEVEL:g} %, with their "
        f"common default kernel and {N_RESAMPLES} resamples.",
        "## Level",
        'Both models have the same SKCE. "both calibrated": one uses fewer features. "equally '
        'wrong": each uses one of two features and is over-confident. "one sharp, one blunt": '
        "both are calibrated, one nearly certain, the other nearly uninformative. For counts, a "
        "negative binomial model is compared with a Poisson model. If both models are "
        "calibrated, the resamples vary up to 3 times as much as the difference, so rejections "
        "are rare. A model compared with itself has difference 0 and p-value 1.",
        f"The highest of {len(found)} rates is {max(map(excess, found), default=0.0):.1f} "
        "standard errors above the level (negative: below).",
        table(
            ["predictions", "truth", *(f"n = {n}" for n in DATA_SETS)],
            [
                [family, case, *(rate(of_n.get(str(n))) for n in DATA_SETS)]
                for family, cases in levels.items()
                for case, of_n in cases.items()
            ],
        ),
        "The number of data sets: "
        + ", ".join(f"{k} for n = {n}" for n, k in DATA_SETS.items())
        + (" (quick: fewer)." if results.get("quick") else "."),
        "## Power",
        f"The first model is calibrated, n = {POWER_ROWS}, {POWER_DATA_SETS} data sets. The "
        "second model has logits (or standard deviations) times a factor.",
        *(
            table(
                [f"{family}: factor", *map(str, factors)],
                [
                    [
                        "rejected, %",
                        *(
                            rate(results.get("power", {}).get(family, {}).get(str(f)))
                            for f in factors
                        ),
                    ]
                ],
            )
            for family, (_, factors) in POWER.items()
        ),
    ]
    if "networks" in results:
        parts += ["## Networks", *networks_in_words(results["networks"])]
    parts.append(f"Device: {results.get('device', '')}.")
    return "\n\n".join(parts) + "\n"


def networks_in_words(networks: Mapping[str, Any]) -> list[str]:
    rows = []
    for row in networks["rows"]:
        cells = [row["network"], f"{1000 * row['estimate']:.3f}"]
        if "pvalue" in row:
            interval = f"[{1000 * row['low']:.3f}, {1000 * row['high']:.3f}]"
            cells += [f"{1000 * row['difference']:.3f}", interval, f"{row['pvalue']:.3g}"]
        rows.append(cells + [""] * (5 - len(cells)))
    return [
        f"Networks of {networks['file']}, n = {networks['n']}, with {networks['n_resamples']} "
        "resamples: the unbiased SKCE, its difference from the best network with simultaneous 95 "
        "% intervals, and adjusted p-values. Errors are in thousandths. The best network was "
        "chosen on the same data; intervals and p-values do not account for that.",
        table(["network", "SKCE", "difference", "interval", "p-value"], rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few data sets")
    parser.add_argument("--only", nargs="*", choices=[*CASES, "power"], metavar="PART")
    parser.add_argument("--networks", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--output", type=pathlib.Path, metavar="FOLDER")
    args = parser.parse_args()
    folder = args.output or ROOT / ("build/benchmarks" if args.quick else "benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "comparison.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    asked = [*CASES, "power"] if args.only is None else args.only

    def keep(found: Any, *keys: str) -> None:
        place = results
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = found
        path.write_text(json.dumps(results) + "\n")

    for family, cases in CASES.items():
        for name, case in cases.items() if family in asked else ():
            for n, n_data_sets in DATA_SETS.items():
                found = count(case, n, min(n_data_sets, _QUICK) if args.quick else n_data_sets)
                keep(found, "levels", family, name, str(n))
                show(f"{family}, {name}, n = {n}: {rate(found)} %")
    for family, (case, factors) in POWER.items() if "power" in asked else ():
        for factor in factors:
            n_data_sets = _QUICK if args.quick else POWER_DATA_SETS
            found = count(jax.tree_util.Partial(case, factor), POWER_ROWS, n_data_sets)
            keep(found, "power", family, str(factor))
            show(f"power, {family}, {factor}: {rate(found)} %")
    if args.networks is not None:
        n_resamples = 39 if args.quick else 999
        rows = ranking(args.networks, n_resamples)
        with np.load(args.networks) as data:
            n = len(data["labels"])
        file = args.networks.name
        found = {"file": file, "n": n, "n_resamples": n_resamples, "rows": rows}
        keep(found, "networks")
        show("\n".join(networks_in_words(found)))
    if asked or args.networks is not None:
        keep(jax.devices()[0].device_kind, "device")
        keep(args.quick, "quick")
    (folder / "COMPARISON.md").write_text(page(results))
    show(f"\n{folder / 'COMPARISON.md'}")


if __name__ == "__main__":
    main()
