"""Every family with every target kernel that has closed forms."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax

import calibjax as cj
from benchmarks import harness
from benchmarks.rows import Row, row, table
from benchmarks.works import labels
from benchmarks.works.families import Batch, Case, batches, cases

#: Rows of the families with many operations for each pair.
FEWER_ROWS = {"MultivariateNormal": 1024, "Mixture": 1024, "Empirical": 512}


def _in_turn(case: Case) -> dict[str, Callable[[], Any]]:
    function, predictions = case
    value_and_gradient = jax.jit(jax.value_and_grad(function, allow_int=True))
    value = jax.jit(function)
    return {
        "value and gradient": lambda: value_and_gradient(predictions),
        "value": lambda: value(predictions),
    }


def _rows_of(name: str, n: int) -> int:
    return next((rows for family, rows in FEWER_ROWS.items() if name.startswith(family)), n)


@table("Value and gradient, beside the value alone")
def gradient(quick: bool) -> Iterator[Row]:
    """Ours is the value and its gradient in all parameters of the predictions, the "peer" only our
    value."""
    for n, m in ((256, 10),) if quick else ((10_000, 10), (4096, 100)):
        calls = {
            "value and gradient": labels.skce(n, m, gradient=True),
            "value": labels.skce(n, m, jitted=True),
        }
        times = harness.time_calls(calls, repeats=1 if quick else 7)
        ours, value = (times[name]["median"] for name in calls)
        yield row(f"Categorical, White, n = {n}, m = {m}", ours, value, "<4", times=times)
    for name in cases(2):
        n = 32 if quick else _rows_of(name, 2048)
        calls = _in_turn(cases(n)[name])
        times = harness.time_calls(calls, repeats=1 if quick else 5)
        ours, value = (times[name]["median"] for name in calls)
        yield row(f"{name}, n = {n}", ours, value, "<4", times=times)


@table("Value and gradient out of one loop, beside the value alone")
def fusion(quick: bool) -> Iterator[Row]:
    """For predictions and targets that are numbers, a CPU computes the value and all partial
    derivatives of a pair in one loop. A ratio of ten or more means that XLA no longer fuses these
    loops, or LLVM no longer vectorises them. Ours is value and gradient, the "peer" the value."""
    for family in ("Normal", "Laplace", "Poisson"):
        batch = batches(32 if quick else 2048)[family]
        for name, kernel in batch.kernels().items():
            for block_size in (None, 8 if quick else 256):
                yield _in_predictions_and_more(
                    f"{family}, {name}", kernel, batch, block_size, quick
                )


def _in_predictions_and_more(
    work: str, kernel: Any, batch: Batch, block_size: int | None, quick: bool
) -> Row:
    """The gradient in predictions, and in targets too if there are no blocks."""

    def value(predictions, targets):
        return cj.skce(kernel, predictions, targets, block_size=block_size)

    argnums = (0,) if block_size else (0, 1)
    both = jax.jit(jax.value_and_grad(value, argnums, allow_int=True))
    functions = {"value and gradient": both, "value": jax.jit(value)}
    arguments = batch.predictions, batch.targets
    calls = {key: functools.partial(f, *arguments) for key, f in functions.items()}
    times = harness.time_calls(calls, repeats=1 if quick else 7)
    ours, alone = (times[key]["min"] for key in calls)
    of = f"predictions, blocks of {block_size}" if block_size else "predictions and targets"
    return row(f"{work}: {of}", ours, alone, "<5", times=times)


@table("Compilation")
def compilation(quick: bool) -> Iterator[Row]:
    """Tracing, lowering and compiling from empty caches, the faster of two; n = 2048."""
    n = 32 if quick else 2048
    for name, (function, predictions) in list(cases(n).items())[: 1 if quick else None]:
        for timed, work, target in (
            (function, "value", "<1.5"),
            (jax.value_and_grad(function), "value and gradient", "<4"),
        ):
            repeats = 1 if quick else 2
            least = min(harness.compile_seconds(timed, predictions) for _ in range(repeats))
            yield row(f"{name}: {work}", least, None, target)
