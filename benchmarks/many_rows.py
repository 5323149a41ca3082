"""Rows against seconds and memory of `evaluate` and its print: ``python -m benchmarks.many_rows``.

    python -m benchmarks.many_rows                          # up to 10^6 rows, half an hour or more
    python -m benchmarks.many_rows --most 100000            # no more rows than that
    python -m benchmarks.many_rows --only "ten classes"     # one kind; the others stay as they were
    python -m benchmarks.many_rows --quick                  # tiny, into build/benchmarks/

Each number of rows has a folder for compiled programs and two new processes: the first finds it
empty, and the second finds all of its programs there.  Their seconds are those from the start of
Python to the printed text.  It writes MANY_ROWS.md, a picture, and all numbers as JSON, after each
number of rows.
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl
from scipy.special import expit, softmax
from scipy.stats import norm

import calibjax as cj
from benchmarks import figures
from benchmarks.harness import ROOT, environment
from calibjax.cli import app

# Targets vary more than predicted, so that each model is rejected, and all that is printed of a
# rejected model is computed.
_SURE = 1.5
_LEVELS = np.array([0.01, 0.025, *(np.arange(1, 20) / 20), 0.975, 0.99], np.float32)
# More seconds of one process count as a failure.
_MOST_SECONDS = 1800
_SIZES = (1_000, 10_000, 100_000, 1_000_000)
# As many events as a table of clicks or payments has.
_ASKED = 200_000

Case = tuple[cj.Distribution, np.ndarray]


def events(n: int, rng: np.random.Generator) -> Case:
    logits = 1.5 * rng.normal(size=n) - 1
    targets = rng.uniform(size=n) < expit(logits / _SURE)
    return cj.Bernoulli(expit(logits).astype(np.float32)), targets.astype(np.int32)


def classes(n_classes: int, n: int, rng: np.random.Generator) -> Case:
    logits = 2 * rng.normal(size=(n, n_classes)).astype(np.float32)
    noise = -np.log(rng.exponential(size=logits.shape).astype(np.float32))
    return cj.Categorical(softmax(logits, axis=1)), np.argmax(logits / _SURE + noise, axis=1)


def _normal(n: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    means, deviations = rng.normal(size=n), np.exp(0.3 * rng.normal(size=n))
    targets = means + _SURE * deviations * rng.normal(size=n)
    return tuple(x.astype(np.float32) for x in (means, deviations, targets))


def normal(n: int, rng: np.random.Generator) -> Case:
    means, deviations, targets = _normal(n, rng)
    return cj.Normal(means, deviations), targets


def quantiles(n: int, rng: np.random.Generator) -> Case:
    means, deviations, targets = _normal(n, rng)
    scores = norm.ppf(_LEVELS).astype(np.float32)
    return cj.Quantiles(means[:, None] + deviations[:, None] * scores, _LEVELS), targets


def clicks(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Events of customers, with four columns of segments."""
    customer, logits = np.sort(rng.integers(0, n // 5, n)), 1.5 * rng.normal(size=n) - 3
    shared = 0.3 * rng.normal(size=n // 5)[customer]
    levels = {"app": 4, "country": 8, "device": 3}
    columns = {name: rng.choice(list("abcdefgh")[:m], n) for name, m in levels.items()}
    clicked = rng.uniform(size=n) < expit(logits / 1.1 + shared + 0.3 * (columns["app"] == "b"))
    columns |= {"age": rng.integers(18, 90, n), "customer": customer}
    columns |= {"p": expit(logits).round(6), "y": clicked.astype(int)}
    options = "--prob p --target y --cluster customer --segments app,country,device,age"
    return columns, f"evaluate {options}"


def _of_groups(n_days: int, n: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """Columns of groups and days, means, deviations and targets: some groups are shifted."""
    group, day = np.divmod(np.arange(n), n_days)
    means, deviations = 10 + rng.normal(size=n), np.exp(0.2 * rng.normal(size=n))
    errors = 1.3 * rng.normal(size=n) + 0.3 * rng.normal(size=n_days)[day]
    targets = means + deviations * (errors + 0.6 * (group < 4))
    names = np.char.add("g", group.astype(str))
    return {"group": names, "day": day, "y": targets.round(3)}, means, deviations


def members(command: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    columns, means, deviations = _of_groups(90, n, rng)
    drawn = means + deviations * rng.normal(size=(20, n))
    columns |= {f"m{k}": x.round(3) for k, x in enumerate(drawn)}
    return columns, f"{command} --draws m* --target y --time day --segments group"


def stores(command: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    columns, means, deviations = _of_groups(200, n, rng)
    for level in (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975):
        columns[f"q{level}"] = (means + deviations * norm.ppf(level)).round(3)
    options = "--quantiles q* --target y --time day --horizon 7 --segments group"
    return columns, f"{command} {options}"


def run_command(columns: Any, arguments: Any) -> str:
    """`calibjax evaluate`, with a report, or `calibjax recalibrate` of a file."""
    name, *options = arguments.split()
    with tempfile.TemporaryDirectory() as folder:
        pl.DataFrame(columns).write_csv(f"{folder}/rows.csv")
        report = ["--html", f"{folder}/report.html"] if name == "evaluate" else []
        app([name, f"{folder}/rows.csv", *options, *report], standalone_mode=False)
    return ""


class Kind(NamedTuple):
    """Predictions and targets of n rows, how many rows are measured, and of what."""

    make: Callable[[int, np.random.Generator], Case]
    sizes: tuple[int, ...] = _SIZES
    printed: Callable[..., Any] = cj.evaluate


KINDS = {
    "events": Kind(events, tuple(sorted({*_SIZES, _ASKED}))),
    "ten classes": Kind(functools.partial(classes, 10)),
    "Normal": Kind(normal),
    "23 quantiles": Kind(quantiles),
    "100 classes": Kind(functools.partial(classes, 100), (20_000,)),
    "1000 classes": Kind(functools.partial(classes, 1000), (5_000,)),
    "events, fit_recalibrator": Kind(events, (_ASKED,), cj.fit_recalibrator),
    "clicks, report": Kind(clicks, (60_000,), run_command),
    "20 members, report": Kind(functools.partial(members, "evaluate"), (2_700,), run_command),
    "7 quantiles, report": Kind(functools.partial(stores, "evaluate"), (9_000,), run_command),
    "20 members, maps": Kind(functools.partial(members, "recalibrate"), (2_700,), run_command),
    "7 quantiles, maps": Kind(functools.partial(stores, "recalibrate"), (9_000,), run_command),
}


def print_evaluation(kind: str, n: int) -> None:
    predictions, targets = KINDS[kind].make(n, np.random.default_rng(0))
    print(KINDS[kind].printed(predictions, targets))


def of_process(kind: str, n: int, folder: str) -> dict[str, Any]:
    """Seconds, seconds of CPU and peak megabytes of a new process; or why there are none."""
    command = [sys.executable, "-m", __spec__.name, "--print", kind, str(n)]
    variables = {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **variables}, stdout=said, stderr=said
        )
        is_late = False
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            time.sleep(0.02)
            if time.perf_counter() > start + _MOST_SECONDS and not is_late:
                is_late = True
                process.kill()
        seconds, (_, status, used) = time.perf_counter() - start, ended
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if is_late:
            return {"failed": f"more than {_MOST_SECONDS} s"}
        if process.returncode:
            lines = said.read().splitlines()
            return {"failed": lines[-1] if lines else f"status {process.returncode}"}
    cpu = used.ru_utime + used.ru_stime
    return {"seconds": seconds, "cpu": cpu, "megabytes": used.ru_maxrss / 1e3}


def measured(kind: str, n: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        first = of_process(kind, n, folder)
        again = first if "failed" in first else of_process(kind, n, folder)
    return {"kind": kind, "n": n, "first": first, "again": again}


def line(row: dict[str, Any]) -> str:
    first, again = row["first"], row["again"]
    start = f"| {row['kind']} | {row['n']} | "
    if "failed" in first or "failed" in again:
        return f"{start}{first.get('failed') or again['failed']} | | | | |"
    largest = max(x["megabytes"] for x in (first, again))
    cells = first["seconds"], again["seconds"], first["cpu"], again["cpu"]
    return start + " | ".join(f"{x:.1f}" for x in cells) + f" | {largest:.0f} |"


def write(rows: list[dict[str, Any]], folder: Path) -> None:
    found = ", ".join(f"{name} {value}" for name, value in environment().items())
    lines = [
        "# Many rows: time and memory of `evaluate`",
        "",
        "Made by `python -m benchmarks.many_rows`: `print(cj.evaluate(predictions, targets))`, "
        "or `fit_recalibrator`, in a new process, including imports and the generation of the "
        "data. The first process starts without compiled programs; the second uses those cached "
        "by the first. Targets vary 1.5 times as much as predicted (labels: true logits are "
        "divided by 1.5), so all models are rejected and the verdict explains them.",
        "",
        f"{found}.",
        "",
        "| predictions | rows | first process [s] | second [s] | first, CPU [s] | second, CPU [s] "
        "| peak memory [MB] |",
        "|---" * 7 + "|",
        *map(line, rows),
        "",
        "![Rows against seconds and memory](figures/many_rows.png)",
    ]
    (folder / "MANY_ROWS.md").write_text("\n".join(lines) + "\n")
    figures.save(picture(rows), folder / "figures" / "many_rows.png")


def picture(rows: list[dict[str, Any]]) -> Any:
    figure, axes = figures.panels(2)
    kept = [row for row in rows if "failed" not in {**row["first"], **row["again"]}]
    for ax, key, label in zip(
        axes, ("seconds", "megabytes"), ("second process [s]", "peak memory [MB]"), strict=True
    ):
        series = {}
        for kind in dict.fromkeys(row["kind"] for row in kept):
            points = sorted((row["n"], row["again"][key]) for row in kept if row["kind"] == kind)
            series[kind] = tuple(zip(*points, strict=True))
        figures.draw(ax, series, "rows", label)
    figures.legend_below(figure, axes[0], 4)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rows, into build/benchmarks/")
    parser.add_argument("--most", type=int, default=max(_SIZES), help="the largest number of rows")
    parser.add_argument("--only", choices=KINDS, action="append", help="measure only these kinds")
    parser.add_argument("--print", nargs=2, metavar=("KIND", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.print:
        print_evaluation(options.print[0], int(options.print[1]))
        return
    jax.config.update("jax_platforms", "cpu")
    folder = ROOT / "build" / "benchmarks" if options.quick else ROOT / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    kept = ROOT / "build" / "benchmarks" / f"many_rows{'_quick' if options.quick else ''}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(kept.read_text()) if kept.exists() else []
    for kind, (_, sizes, _) in KINDS.items():
        for n in (100,) if options.quick else sizes:
            if kind in (options.only or KINDS) and n <= options.most:
                row = measured(kind, n)
                found = [x for x in found if (x["kind"], x["n"]) != (kind, n)] + [row]
                found.sort(key=lambda x: ([*KINDS].index(x["kind"]), x["n"]))
                print(line(row), flush=True)
                kept.write_text(json.dumps(found, indent=1))
                write(found, folder)


if __name__ == "__main__":
    main()
