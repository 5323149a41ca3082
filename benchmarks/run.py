"""Runs the benchmarks and prints a table: ``python -m benchmarks.run [--quick] [--only NAME]``."""

import argparse
import functools
import json
import pathlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from benchmarks import harness, works

Row = dict[str, Any]

#: name -> function of `quick`, which yields rows.
BENCHMARKS: dict[str, Callable[[bool], Iterator[Row]]] = {}


def benchmark(function: Callable[[bool], Iterator[Row]]) -> Callable[[bool], Iterator[Row]]:
    BENCHMARKS[function.__name__] = function
    return function


def row(
    work: str, ours: float, peer: float | None, target: str | None, unit: str = "s", **details
) -> Row:
    """One line of the table.  A target "> x" bounds peer / ours from below, "< x" ours / peer from
    above, or `ours` itself where there is no peer."""
    ratio, met = None, None
    if target:
        if peer is not None:
            ratio = peer / ours if target[0] == ">" else ours / peer
        measured, bound = ours if ratio is None else ratio, float(target[1:])
        met = measured > bound if target[0] == ">" else measured < bound
    return {
        "work": work,
        "ours": ours,
        "peer": peer,
        "ratio": ratio,
        "target": target,
        "met": met,
        "unit": unit,
        **details,
    }


def compare(work: str, calls: dict[str, harness.Call], target: str, repeats: int) -> Row:
    """`calls` are ours, then the peer; both must compute the same number."""
    times = harness.time_calls(calls, repeats)
    np.testing.assert_allclose(*(float(call()) for call in calls.values()), atol=1e-6)
    ours, peer = (times[name]["median"] for name in calls)
    return row(work, ours, peer, target, times=times)


@benchmark
def vmap(quick: bool) -> Iterator[Row]:
    n = 256 if quick else 4096
    for m, target in ((10, ">25"),) if quick else ((10, ">25"), (100, ">40")):
        calls = {"skce": works.skce(n, m), "vmap": works.skce_by_vmap(n, m)}
        work = f"n = {n}, m = {m}; peer: doubly vmapped h"
        yield compare(work, calls, target, repeats=1 if quick else 7)


@benchmark
def scipy(quick: bool) -> Iterator[Row]:
    size = {"n": 256 if quick else 10_000, "m": 10}
    ours = harness.peak_memory("skce", **size)["megabytes"]
    for rowwise, how in ((False, "square matrices"), (True, "row by row"))[: 1 if quick else 2]:
        calls = {"skce": works.skce(**size), "scipy": works.skce_by_scipy(**size, rowwise=rowwise)}
        work = f"n = {size['n']}, m = 10; peer: scipy pdist and BLAS, {how}"
        yield compare(work, calls, ">25", repeats=1 if quick else 5)
        peer = harness.peak_memory("skce_by_scipy", **size, rowwise=rowwise)["megabytes"]
        yield row(f"memory, {work}", ours, peer, ">20", unit="MB")


@benchmark
def gradient(quick: bool) -> Iterator[Row]:
    for n, m in ((256, 10),) if quick else ((10_000, 10), (4096, 100)):
        calls = {
            "value and gradient": works.skce(n, m, gradient=True),
            "value": works.skce(n, m, jitted=True),
        }
        times = harness.time_calls(calls, repeats=1 if quick else 7)
        ours, value = (times[name]["median"] for name in calls)
        work = f"value and gradient, n = {n}, m = {m}; peer: value alone"
        yield row(work, ours, value, "<4", times=times)


@benchmark
def normal(quick: bool) -> Iterator[Row]:
    n = 256 if quick else 16_384
    peers = {"plain": works.plain_residual, "stable": works.stable_residual}
    calls = {"skce": works.normal_skce(n)}
    calls |= {name: works.normal_by_hand(n, residual) for name, residual in peers.items()}
    times = harness.time_calls(calls, repeats=1 if quick else 7)
    values = {name: float(call()) for name, call in calls.items()}
    for name in peers:
        np.testing.assert_allclose(values["skce"], values[name], atol=1e-6)
        work = f"Normal, Gaussian, n = {n}; peer: {name} formula in a hand-written loop"
        yield row(work, times["skce"]["median"], times[name]["median"], "<1.2", times=times)


@benchmark
def large(quick: bool) -> Iterator[Row]:
    n = 1000 if quick else 100_000
    works_and_targets = (False, "value", "<200"), (True, "value and gradient", "<400")
    for gradient, work, target in works_and_targets[: 1 if quick else 2]:
        used = harness.peak_memory("skce", n=n, m=10, gradient=gradient)
        work = f"peak memory of {work}, n = {n}, m = 10 ({used['seconds']:.3g} s)"
        yield row(work, used["megabytes"], None, target, unit="MB")


@benchmark
def blocks(quick: bool) -> Iterator[Row]:
    sizes = (256, 1024) if quick else (10_000, 100_000, 1_000_000)
    for block_size in (32,) if quick else (2, 32, 256):
        used = [
            harness.peak_memory("skce", n=n, m=10, block_size=block_size, gradient=True)
            for n in sizes
        ]
        # Linear time: as long for a row of the largest batch as for one of the smallest.
        per_row = [u["seconds"] / n for u, n in zip(used, sizes, strict=True)]
        details = "; ".join(
            f"n = {n}: {u['seconds']:.3g} s, {u['megabytes']:.0f} MB"
            for u, n in zip(used, sizes, strict=True)
        )
        work = f"seconds per row, value and gradient, block_size = {block_size} ({details})"
        yield row(work, per_row[-1], per_row[0], "<1.5", used=used, sizes=sizes)


@benchmark
def bootstrap(quick: bool) -> Iterator[Row]:
    n, n_resamples = (64, 20) if quick else (1024, 1000)
    calls = {
        "ours": works.bootstrap_test(n, 10, n_resamples),
        "numpy": works.bootstrap_test_by_numpy(n, 10, n_resamples),
    }
    times = harness.time_calls(calls, repeats=1 if quick else 15)
    # Other draws, the same law.
    ours, peer = (float(call()) for call in calls.values())
    assert abs(ours - peer) < 8 * np.sqrt(1 / (4 * n_resamples))
    ours, peer = (times[name]["median"] for name in calls)
    work = f"bootstrap test, n = {n}, {n_resamples} resamples, m = 10; peer: NumPy and BLAS"
    yield row(work, ours, peer, ">1.4", times=times)
    calls = {"ours": works.normal_bootstrap_test(n, n_resamples)}
    times = harness.time_calls(calls, repeats=1 if quick else 15)
    work = f"bootstrap test, n = {n}, {n_resamples} resamples, Normal; peer: Julia, as published"
    yield row(work, times["ours"]["median"], 1.046, ">20", times=times)
    for n, n_resamples in ((256, 20),) if quick else ((10_000, 1000), (100_000, 200)):
        used = harness.peak_memory("bootstrap_test", n=n, m=10, n_resamples=n_resamples)
        work = f"peak memory, bootstrap test, n = {n}, {n_resamples} resamples"
        yield row(f"{work} ({used['seconds']:.3g} s)", used["megabytes"], None, "<200", unit="MB")


@benchmark
def tests(quick: bool) -> Iterator[Row]:
    for n in (64,) if quick else (128, 1024, 10_000):
        for name, test in list(works.hypothesis_tests(n, 10).items())[: 2 if quick else None]:
            times = harness.time_calls({name: test}, repeats=1 if quick else 5)
            yield row(f"{name}, n = {n}", times[name]["median"], None, None, times=times)
    for n_resamples in (10,) if quick else (100, 10_000):
        test = works.bootstrap_test(64 if quick else 1024, 10, n_resamples)
        times = harness.time_calls({"ours": test}, repeats=1 if quick else 5)
        work = f"bootstrap, n = 1024, {n_resamples} resamples"
        yield row(work, times["ours"]["median"], None, None, times=times)


@benchmark
def training(quick: bool) -> Iterator[Row]:
    batch = 32 if quick else 256
    calls = works.training_steps(batch, m=10)
    times = harness.time_calls(calls, repeats=1 if quick else 25)
    ours, peer = times["with"]["median"], times["without"]["median"]
    work = f"training step with the penalty, batch {batch}, m = 10; peer: without"
    yield row(work, ours, peer, "<1.05", times=times)


@benchmark
def compilation(quick: bool) -> Iterator[Row]:
    for name, (skce, predictions) in list(works.families(2048).items())[: 1 if quick else None]:
        for function, work, target in (
            (skce, "value", "<1.5"),
            (jax.value_and_grad(skce), "value and gradient", "<4"),
        ):
            repeats = [
                harness.compile_seconds(function, predictions) for _ in range(1 if quick else 3)
            ]
            yield row(f"compile {work}, {name}", statistics.median(repeats), None, target)


@benchmark
def imports(quick: bool) -> Iterator[Row]:
    code = (
        "import json, time; start = time.perf_counter(); import jax; middle = time.perf_counter();"
        "import calibjax; print(json.dumps((middle - start, time.perf_counter() - middle)))"
    )
    pairs = [harness.in_fresh_process(code) for _ in range(1 if quick else 5)]
    of_jax, more = (statistics.median(times) for times in zip(*pairs, strict=True))
    yield row(f"import calibjax after jax (jax itself: {of_jax:.3g} s)", more, None, "<0.3")


def markdown(result: Row) -> str:
    def quantity(x):
        return "" if x is None else f"{x:.3g} {result['unit']}"

    ratio = "" if result["ratio"] is None else f"{result['ratio']:.3g}"
    target = result["target"] or ""
    target = f"{target[:1]} {target[1:]}{' (missed)' if result['met'] is False else ''}".strip()
    columns = (result["work"], quantity(result["ours"]), quantity(result["peer"]), ratio, target)
    return f"| {' | '.join(columns)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all run")
    parser.add_argument("--only", choices=BENCHMARKS, help="one benchmark")
    default = harness.ROOT / "benchmarks" / "results.json"
    parser.add_argument("--output", type=pathlib.Path, default=default)
    arguments = parser.parse_args()

    show = functools.partial(print, flush=True)
    environment = harness.environment()
    show(", ".join(f"{name} {value}" for name, value in environment.items()), end="\n\n")
    show("| work | ours | peer | ratio | target |\n|---|---|---|---|---|")
    rows = []
    for name in [arguments.only] if arguments.only else BENCHMARKS:
        for result in BENCHMARKS[name](arguments.quick):
            if arguments.quick:
                result["met"] = None
            rows.append({"name": name, **result})
            show(markdown(result))
    content = {"environment": environment, "quick": arguments.quick, "rows": rows}
    arguments.output.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
