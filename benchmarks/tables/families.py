"""Every family with every target kernel that has closed forms."""

from collections.abc import Callable, Iterator
from typing import Any

import jax

from benchmarks import harness
from benchmarks.rows import Row, row, table
from benchmarks.works import labels
from benchmarks.works.families import Case, cases

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
    """Ours is the value with its gradient in all parameters of the predictions, the "peer" our
    value alone."""
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
