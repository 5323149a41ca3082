"""The exact test with several kernels."""

from collections.abc import Iterator

from benchmarks import harness
from benchmarks.rows import Row, missing, quantity, row, table
from benchmarks.works import aggregated as works
from benchmarks.works import binary


@table("The exact test", columns=("work", "ours", "peer", "target", "megabytes"))
def exact_test(quick: bool) -> Iterator[Row]:
    """`aggregated_skce_test` with the six `default_kernels`, or nine lengthscales, without the time
    to choose the kernels. Memory is without the data."""
    size = 64 if quick else 1000
    n_resamples = 20 if quick else 999
    few, large, huge = (20, 128, 256) if quick else (199, 10**5, 10**6)
    calls = (
        (
            f"n = {size}, 10 classes, 9 kernels",
            "<0.5",
            works.test_of_kernels,
            {"n": size, "n_kernels": 9},
        ),
        (f"n = {size}, 10 classes", "<0.5", works.test_of_classes, {"n": size, "m": 10}),
        (f"n = {size}, 100 classes", None, works.test_of_classes, {"n": size, "m": 100}),
        (f"n = {size}, binary", None, works.binary_test, {"n": size}),
        (f"n = {size}, Normal", None, works.test_of_numbers, {"n": size}),
        ("221 forecasts of 100 samples", "<2", works.test_of_samples, {"n": 221, "n_samples": 100}),
        (
            f"{size} forecasts of 100 samples",
            "<2",
            works.test_of_samples,
            {"n": size, "n_samples": 100},
        ),
        (f"n = {large}, 10 classes", "<15", works.test_of_classes, {"n": large, "m": 10}),
        (f"n = {large}, binary", None, works.binary_test, {"n": large}),
        (f"n = {large}, Normal", None, works.test_of_numbers, {"n": large}),
        (f"n = {huge}, 10 classes", None, works.test_of_classes, {"n": huge, "m": 10}),
    )
    for name, target, work, arguments in calls:
        draws = n_resamples if arguments["n"] <= 1000 else few
        used = harness.peak_memory(work, **arguments, n_resamples=draws)
        result = row(f"{name}, {draws} draws", used["seconds"], None, target)
        yield result | {"megabytes": quantity(used["megabytes"], "MB")}


@table("The exact test beside its peers", columns=("work", "ours", "peer", "ratio"))
def exact_test_peers(quick: bool) -> Iterator[Row]:
    """The same number of resamples for all. All pairs: n x n matrices of nine kernels and their
    products with all signs in JAX, as in MMD-FUSE. T-Cal: its adaptive test in NumPy, all scales,
    binary. probcal: `skce_test` with one kernel, binary."""
    n_resamples = 20 if quick else 999
    for n in (64,) if quick else (1000, 4000):
        calls = {
            "ours": works.test_of_classes(n, 10, n_resamples),
            "peer": works.aggregation_of_all_pairs(n, 10, n_resamples),
        }
        times = harness.time_calls(calls, repeats=1 if quick else 3)
        seconds = (times[name]["median"] for name in calls)
        yield row(f"n = {n}, 10 classes; all pairs", *seconds, None, times=times)
    for n in (64,) if quick else (1000, 10_000):
        calls = {"ours": works.binary_test(n, n_resamples), "peer": works.t_cal(n, n_resamples)}
        times = harness.time_calls(calls, repeats=1)
        seconds = (times[name]["median"] for name in calls)
        yield row(f"n = {n}, binary; T-Cal", *seconds, None, times=times)
    words, n = missing("probcal"), 64 if quick else 1000
    calls = {"ours": works.binary_test(n, n_resamples)}
    if not words:
        calls["peer"] = binary.test_by_probcal(n, n_resamples)
    times = harness.time_calls(calls, repeats=1 if quick else 3)
    peer = words or times["peer"]["median"]
    yield row(f"n = {n}, binary; probcal", times["ours"]["median"], peer, None, times=times)


@table("Cost of the exact test", columns=("work", "ours"))
def exact_test_cost(quick: bool) -> Iterator[Row]:
    """Ten classes, 199 draws, by the number of rows n and of kernels K."""
    sizes = (64, 128) if quick else (1000, 3000, 10_000, 30_000, 100_000)
    for n_kernels in (1, 3, 9):
        for n in sizes:
            call = works.test_of_kernels(n, n_kernels, 20 if quick else 199)
            times = harness.time_calls({"ours": call}, repeats=1 if quick else 3)
            result = row(f"n = {n}, K = {n_kernels}", times["ours"]["median"], None, None)
            yield result | {"n": n, "K": n_kernels}
