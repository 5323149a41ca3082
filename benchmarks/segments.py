"""Level, power and speed of tests that look for whom a model is wrong.

    python -m benchmarks.segments                # all
    python -m benchmarks.segments --quick        # few data sets, to see that all run
    python -m benchmarks.segments --only power   # one chapter; none: the page, from old results
    python -m benchmarks.segments --data DIR     # the events of some data sets as npz, for others

It writes `SEGMENTS.md` and `segments.json` into `benchmarks/`, or into the folder ``--output``.
Results are kept after every case.
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

import calibjax as cj
from benchmarks.harness import ROOT
from benchmarks.rates import cell, rates_of
from benchmarks.works.segments import (
    TESTS,
    Case,
    cells,
    classes,
    counts,
    events,
    measured,
    normal,
    quantiles,
    samples,
    stations,
)

LEVELS, N_RESAMPLES, N_LOOPS = (0.05, 0.01), 199, 50
N_DATA_SETS = {"level": 2000, "power": 200}
_QUICK = 8
#: The cases in which a loop is tried, which takes far longer than all else.
LOOPED = {
    "normal",
    "events",
    "normal, one of 5 stations: spread 1.35",
    "events, one station higher",
}
#: Cases of events that other packages are shown, and how many data sets.
PEER_CASES, N_PEERS = ("events", "events, one station higher"), 100
#: How often MCGrad's p-value is at most a level, measured in an environment of its own: that of
#: mcgrad 0.1.5, `MulticalibrationError(…, max_depth=2).mce_pvalue`, of what ``--data`` writes.
MCGRAD = {
    "events": {"0.05": 0.76, "0.01": 0.23},
    "events, one station higher": {"0.05": 1.0, "0.01": 0.92},
}

show = functools.partial(print, flush=True)


def level_cases() -> dict[str, Case]:
    n = 500
    groups = stations(n)
    weights = {"weights": np.float32(10 ** np.random.default_rng(0).uniform(-1.5, 1.5, n))}
    found = {
        "normal": Case(normal(groups), groups),
        "events": Case(events(groups), groups),
        "rare events": Case(events(groups, middle=-4.5), groups),
        "ten classes": Case(classes(groups), groups),
        "counts": Case(counts(groups), groups),
        "ten samples": Case(samples(groups), groups),
        "five quantiles": Case(quantiles(groups), groups),
        "normal, weights of three orders": Case(normal(groups), groups, weights),
        "events, weights of three orders": Case(events(groups), groups, weights),
    }
    for n_clusters, share in ((100, 0.3), (20, 0.1)):
        of_rows = np.random.default_rng(1).permutation(np.arange(n) % n_clusters)
        draw = normal(groups, share=share, clusters=of_rows)
        name = f"normal, {n_clusters} clusters, correlation {share}"
        found[name] = Case(draw, groups, {"clusters": of_rows.astype(np.int32)})
    return found


def power_cases() -> dict[str, Case]:
    groups, few = stations(1000), cells(1000)
    in_c = groups["station"] == "C"
    in_cell = (few["station"] == "C") & (few["lead"] == 2)
    first, second = np.isin(few["station"], list("ABCDE")), few["lead"] <= 2
    halves = {"side": np.where(first, "left", "right"), "time": np.where(second, "day", "night")}
    sign = np.where(first == second, 1.0, -1.0)
    pairs = tuple({"side": a, "time": b} for a in ("left", "right") for b in ("day", "night"))
    others = {name: groups[name] for name in ("station", "lead", "kind")}
    height = groups["height"]
    quarters = tuple({"height": level} for level in _quarters(height))
    station, cell = ({"station": "C"},), ({"station": "C", "lead": "2"},)
    return {
        "normal, one of 5 stations: spread 1.35": Case(
            normal(groups, spread=np.where(in_c, 1.35, 1.0)), groups, {}, station
        ),
        "normal, one of 40 cells: half a deviation higher": Case(
            normal(few, shift=0.5 * in_cell), few, {}, cell
        ),
        "normal, two columns: +0.3 where they agree, -0.3 where not": Case(
            normal(groups, shift=0.3 * sign), others | halves, {}, pairs
        ),
        "normal, a wave of a number: 0.4 sin(2 pi height)": Case(
            normal(groups, shift=0.4 * np.sin(2 * np.pi * height)), groups, {}, quarters
        ),
        "events, one station higher": Case(events(groups, shift=0.6 * in_c), groups, {}, station),
        "ten classes, one station over-confident": Case(
            classes(groups, temperature=np.where(in_c, 1.5, 1.0)), groups, {}, station
        ),
    }


def _quarters(values: np.ndarray) -> list[str]:
    ordered = np.sort(values)
    parts = np.split(ordered, [ordered.size * k // 4 for k in (1, 2, 3)])
    return [f"{x.min():.4g} to {x.max():.4g}" for x in parts]


def speed() -> dict[str, Any]:
    """Seconds of all cores for 10^5 rows, about 1000 segments and 999 draws."""
    rng, n = np.random.default_rng(0), 100_000
    groups = {f"column {k}": rng.integers(0, 6, n) for k in range(8)}
    probs = rng.uniform(0.05, 0.95, n).astype(np.float32)
    loc = rng.normal(size=n).astype(np.float32)
    data = {
        "events": (cj.Bernoulli(probs), (rng.uniform(size=n) < probs).astype(np.int32)),
        "normal": (
            cj.Normal(loc, np.ones(n, np.float32)),
            loc + rng.normal(size=n).astype(np.float32),
        ),
    }
    found = {}
    for name, rows in data.items():
        call = functools.partial(cj.segment_test, jax.random.key(0), *rows, groups)
        result = jax.block_until_ready(call())
        start = time.process_time()
        jax.block_until_ready(call())
        found[name] = {
            "n_segments": result.n_segments,
            "of_processor": time.process_time() - start,
        }
    return found


def page(results: Mapping[str, Any]) -> str:
    quick = " (quick: fewer data sets)" if results.get("quick") else ""
    beyond = [
        f"{name} ({rate:.3f} at {level})"
        for name, result in results.get("level", {}).items()
        for level in LEVELS
        if (rate := result["rates"]["segments"][str(level)])
        > level + 3 * np.sqrt(level * (1 - level) / result["n_data_sets"])
    ]
    parts = [
        "# For whom is a model wrong?",
        "Made by `python -m benchmarks.segments`. Rejection rates of simulated data sets, with "
        f"{N_RESAMPLES} resamples. The rows have four columns: 5 stations, 4 lead times, 4 kinds "
        "of weather, and a number cut at its quartiles. This gives 126 segments of up to two "
        "columns.",
        "* **`segment_test`**: its p-value, adjusted for all segments and statistics.\n"
        "* **Bonferroni, normal tails**: the smallest p-value of the same sums, assuming "
        "normality, times their number.\n"
        "* **Benjamini and Yekutieli**: the same p-values; rejected if their procedure rejects "
        "any.\n"
        "* **a loop of `calibration_test`**: the smallest p-value over the categories of each "
        f"column, {N_LOOPS} data sets.\n"
        f"* **MCGrad's own p-value**: that of mcgrad 0.1.5 with the same columns, {N_PEERS} data "
        "sets; documented as not adjusted for multiple testing.",
        "## False alarms of calibrated models, 500 rows",
        "The standard error near 0.05 is 0.005 for 2000 data sets, and 0.011 for 400. Cases were "
        "run separately (`--cases`); the second column is the number of data sets.",
        _table(results.get("level", {}), [str(level) for level in LEVELS], False),
        f"More than three standard errors above the level: {'; '.join(beyond) or 'none'}.",
        f"## Power at 0.05, 1000 rows, {N_DATA_SETS['power']} data sets",
        "**named first**: how often the segment with the largest score is a miscalibrated one.",
        _table(results.get("power", {}), ["0.05"], True),
        "## Speed",
        "10^5 rows, 999 draws, second call. Seconds are CPU seconds, which hardly depend on the "
        "other load of the machine.",
        _speed_table(results.get("speed", {})),
        f"Device: {results.get('device', '')}{quick}.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(results: Mapping[str, Any], levels: list[str], is_power: bool) -> str:
    columns = [
        (test, level) for test in TESTS for level in levels[: 2 if test == "segments" else 1]
    ]
    header = ["case", "named first" if is_power else "data sets"]
    header += [f"{TESTS[test]}, {level}" for test, level in columns]
    rows = []
    for name, result in results.items():
        rates = result["rates"] | ({"mcgrad": MCGRAD[name]} if name in MCGRAD else {})
        cells = [cell(rates.get(test, {}).get(level)) for test, level in columns]
        own = cell(result["first"]) if is_power else str(result["n_data_sets"])
        rows.append([name, own, *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows])


def _speed_table(times: Mapping[str, Any]) -> str:
    rows = [["rows", "segments", "seconds of all cores"], ["---"] * 3]
    rows += [[name, str(x["n_segments"]), f"{x['of_processor']:.1f}"] for name, x in times.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def write_data(folder: pathlib.Path) -> None:
    """Probabilities, targets and columns of data sets of the cases that others are shown."""
    every = level_cases() | power_cases()
    for name in PEER_CASES:
        case = every[name]
        keys = jax.random.split(jax.random.key(0), N_PEERS)
        draw = jax.jit(lambda key, case=case: case.draw(jax.random.split(key)[0]))
        drawn = [draw(key) for key in keys]
        np.savez(
            folder / f"{name}.npz",
            probs=np.stack([p.probs for p, _ in drawn]),
            targets=np.stack([y for _, y in drawn]),
            **case.groups,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=("level", "power", "speed"))
    parser.add_argument("--cases", nargs="*", help="only cases with one of these words")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    options = parser.parse_args()
    if options.data is not None:
        write_data(options.data)
        return
    folder = ROOT / ("build/benchmarks" if options.quick else "benchmarks")
    folder = options.output or folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "segments.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    results |= {"device": jax.devices()[0].device_kind, "quick": options.quick}
    chapters = ("level", "power", "speed") if options.only is None else options.only
    cases = {"level": level_cases, "power": power_cases}
    for chapter in chapters:
        if chapter == "speed":
            results["speed"] = speed()
            show(results["speed"])
            continue
        for name, case in cases[chapter]().items():
            if options.cases and not any(word in name for word in options.cases):
                continue
            n = _QUICK if options.quick else N_DATA_SETS[chapter]
            n_loops = min(n, N_LOOPS) if name in LOOPED else 0
            found = measured(case, n, N_RESAMPLES, n_loops)
            result = {"n_data_sets": n, "rates": rates_of(found, TESTS, LEVELS)}
            result["first"] = float(np.mean(found["first"]))
            results.setdefault(chapter, {})[name] = result
            show(name, result)
            file.write_text(json.dumps(results, indent=1))
    file.write_text(json.dumps(results, indent=1))
    (folder / "SEGMENTS.md").write_text(page(results))


if __name__ == "__main__":
    main()
