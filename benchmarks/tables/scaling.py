"""Cost against n and m, and the largest n."""

from collections.abc import Iterator
from typing import Any

from benchmarks import harness
from benchmarks.rows import Row, quantity, row, table
from benchmarks.works import labels, stream

#: Series of a plot: the function, its arguments, and the largest n and m that it is run at.
SERIES: dict[str, tuple[Any, dict[str, Any], int, int]] = {
    "value": (labels.skce, {}, 100_000, 1000),
    "value and gradient": (labels.skce, {"gradient": True}, 100_000, 1000),
    "blocks of 32": (labels.skce, {"block_size": 32}, 1_000_000, 1000),
    "h vmapped twice": (labels.skce_by_vmap, {}, 4096, 100),
    "SciPy and BLAS": (labels.skce_by_scipy, {}, 10_000, 1000),
}


#: All pairs of so many rows take minutes: one call, compiled beforehand.
MILLION = 1_000_000


@table("Memory of all pairs")
def large(quick: bool) -> Iterator[Row]:
    """Peak memory of the exact U-statistic, without its inputs, m = 10; time in brackets."""
    n = 1000 if quick else 100_000
    for arguments, work, target in (
        ({}, "value", "<200"),
        ({"gradient": True}, "value and gradient", "<400"),
    ):
        used = harness.peak_memory(labels.skce, n=n, m=10, **arguments)
        work = f"{work}, n = {n} ({quantity(used['seconds'], 's')})"
        yield row(work, used["megabytes"], None, target, unit="MB")
    n = 2000 if quick else MILLION
    used = harness.peak_memory(labels.skce_compiled, warm=False, n=n, m=10)
    work = f"value, n = {n}, one call ({quantity(used['seconds'], 's')})"
    yield row(work, used["megabytes"], None, None, unit="MB")


@table("Blocks: time for each row")
def blocks(quick: bool) -> Iterator[Row]:
    """Value and gradient, m = 10. Time is linear in n if a row takes as long in the largest batch
    (ours) as in the smallest ("peer")."""
    sizes = (256, 1024) if quick else (10_000, 100_000, 1_000_000)
    for block_size in (32,) if quick else (2, 32, 256):
        arguments = {"m": 10, "block_size": block_size, "gradient": True}
        used = [harness.peak_memory(labels.skce, n=n, **arguments) for n in sizes]
        per_row = [u["seconds"] / n for u, n in zip(used, sizes, strict=True)]
        details = "; ".join(f"n = {n}: {_cost(u)}" for u, n in zip(used, sizes, strict=True))
        yield row(f"blocks of {block_size} ({details})", per_row[-1], per_row[0], "<1.5")


@table("A stream of rows", columns=("rows", "work", "seconds", "MB", "estimate", "standard error"))
def streamed(quick: bool) -> Iterator[Row]:
    """`SKCEState` in a `lax.scan`: each batch of 10 000 rows of a calibrated model, m = 10, is
    generated from a key and discarded; blocks of 50. Second row: generating the batches."""
    n, batch = (2000, 500) if quick else (10_000_000, 10_000)
    size = {"n": n, "m": 10, "batch": batch}
    ours = harness.peak_memory(stream.stream, **size, block_size=50)
    estimate, error = ours["numbers"]
    assert abs(estimate) < 5 * error, "the model is calibrated"
    yield {
        "rows": n,
        "work": "estimate",
        "seconds": ours["seconds"],
        "MB": ours["megabytes"],
        "estimate": estimate,
        "standard error": error,
    }
    alone = harness.peak_memory(stream.batches_alone, **size)
    yield {
        "rows": n,
        "work": "batches alone",
        "seconds": alone["seconds"],
        "MB": alone["megabytes"],
    }


def _cost(used: dict[str, Any]) -> str:
    return f"{quantity(used['seconds'], 's')}, {quantity(used['megabytes'], 'MB')}"


def _point(name: str, n: int, m: int) -> dict[str, Any] | None:
    function, arguments, largest_n, largest_m = SERIES[name]
    if n > largest_n or m > largest_m:
        return None
    return harness.peak_memory(function, n=n, m=m, **arguments)


@table("Cost against n and m", columns=("n", "m", *SERIES))
def cost(quick: bool) -> Iterator[Row]:
    """Time and peak memory without the inputs, each cell in a separate process. Value and blocks
    are called outside of jit, as is usual."""
    of_n = (64, 128) if quick else (100, 1000, 4096, 10_000, 100_000, MILLION)
    fixed, of_m = (128, (2, 10)) if quick else (2048, (2, 10, 100, 1000))
    for n, m in dict.fromkeys([(n, 10) for n in of_n] + [(fixed, m) for m in of_m]):
        points = {name: _point(name, n, m) for name in SERIES}
        points = {name: point for name, point in points.items() if point}
        cells = {name: _cost(point) for name, point in points.items()}
        yield {"n": n, "m": m, "points": points, **cells}
