"""Hypothesis tests, alone and beside peers."""

from collections.abc import Iterator

import numpy as np

from benchmarks import harness
from benchmarks.rows import Row, quantity, row, table
from benchmarks.works import hypothesis_tests as works

#: Seconds that the Julia package is published to take, on another machine (3.6 GHz).
JULIA = 1.046


def _same_law(calls: dict[str, harness.Call], n_resamples: int) -> None:
    """Other draws: the p-values differ by no more than those of one law."""
    ours, peer = (float(call()) for call in calls.values())
    assert abs(ours - peer) < 8 * np.sqrt(1 / (4 * n_resamples)), (ours, peer)


@table("The bootstrap test beside its peers")
def bootstrap(quick: bool) -> Iterator[Row]:
    """Times include H and the draws, m = 10. NumPy: the same matrix products with BLAS, counts by
    `bincount`. Products in JAX: sum(V * (H @ V)) with the full H, as in aggregated two-sample
    tests. Julia: the time published with the paper, on another machine."""
    n, n_resamples = (64, 20) if quick else (1024, 1000)
    for name, peer, target in (
        ("NumPy and BLAS", works.bootstrap_test_by_numpy, ">1.4"),
        ("products in JAX", works.bootstrap_test_by_products, None),
    ):
        arguments = n, 10, n_resamples
        calls = {"ours": works.bootstrap_test(*arguments), "peer": peer(*arguments)}
        _same_law(calls, n_resamples)
        times = harness.time_calls(calls, repeats=1 if quick else 15)
        ours, theirs = (times[name]["median"] for name in calls)
        work = f"n = {n}, {n_resamples} resamples; {name}"
        yield row(work, ours, theirs, target, times=times)
    calls = {"ours": works.normal_bootstrap_test(n, n_resamples)}
    times = harness.time_calls(calls, repeats=1 if quick else 15)
    work = f"n = {n}, {n_resamples} resamples, Normal; Julia"
    yield row(work, times["ours"]["median"], JULIA, ">20", times=times)
    size = {"n": 128 if quick else 10_000, "m": 10, "n_resamples": n_resamples}
    ours = harness.peak_memory(works.bootstrap_test, **size)
    peer = harness.peak_memory(works.bootstrap_test_by_products, **size)
    work = f"n = {size['n']}, {n_resamples} resamples; products in JAX"
    yield row(work, ours["seconds"], peer["seconds"], None)
    yield row(f"memory, {work}", ours["megabytes"], peer["megabytes"], None, unit="MB")


@table("Memory of the bootstrap test")
def bootstrap_memory(quick: bool) -> Iterator[Row]:
    """Peak memory; time in brackets."""
    for n, n_resamples in ((128, 20),) if quick else ((10_000, 1000), (100_000, 200)):
        used = harness.peak_memory(works.bootstrap_test, n=n, m=10, n_resamples=n_resamples)
        work = f"n = {n}, {n_resamples} resamples ({quantity(used['seconds'], 's')})"
        yield row(work, used["megabytes"], None, "<200", unit="MB")


@table("All hypothesis tests", columns=("work", "ours"))
def tests(quick: bool) -> Iterator[Row]:
    """10 classes; 1000 draws for tests with draws."""
    for n in (64,) if quick else (128, 1024, 10_000):
        for name, test in works.hypothesis_tests(n, 10).items():
            times = harness.time_calls({name: test}, repeats=1 if quick else 5)
            yield row(f"{name}, n = {n}", times[name]["median"], None, None, times=times)
    n = 64 if quick else 1024
    for n_resamples in (10,) if quick else (100, 10_000):
        calls = {"ours": works.bootstrap_test(n, 10, n_resamples)}
        times = harness.time_calls(calls, repeats=1 if quick else 5)
        work = f"bootstrap, n = {n}, {n_resamples} resamples"
        yield row(work, times["ours"]["median"], None, None, times=times)
