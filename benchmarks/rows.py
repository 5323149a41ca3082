"""What a benchmark is, and the rows that it yields."""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import harness

Row = dict[str, Any]

#: Of a unit, larger and smaller ones.
UNITS = {"s": {"s": 1.0, "ms": 1e-3, "µs": 1e-6}, "MB": {"GB": 1e3, "MB": 1.0, "kB": 1e-3}}

PAIRED = ("work", "ours", "peer", "ratio", "target")


class Table(NamedTuple):
    """One table of the page: its rows for tiny sizes or in full, and the keys that are columns."""

    name: str
    title: str
    text: str
    rows: Callable[[bool], Iterator[Row]]
    columns: tuple[str, ...] = PAIRED


#: All tables in the order of the page.
TABLES: dict[str, Table] = {}


def table(title: str, columns: tuple[str, ...] = PAIRED):
    """Registers a function of `quick` that yields rows; its docstring goes on the page."""

    def register(function: Callable[[bool], Iterator[Row]]) -> Callable[[bool], Iterator[Row]]:
        text = " ".join((function.__doc__ or "").split())
        TABLES[function.__name__] = Table(function.__name__, title, text, function, columns)
        return function

    return register


def number(x: float) -> str:
    """Three digits and no exponent, unless it is tiny."""
    if isinstance(x, int):
        return str(x)
    if 0 < abs(x) < 1e-3:
        return f"{x:.2e}"
    return np.format_float_positional(x, precision=3, fractional=False, trim="-")


def quantity(x: float, unit: str) -> str:
    """With the unit that makes it at least 1; a unit that is not known stays."""
    units = UNITS.get(unit, {unit: 1.0})
    name = next((name for name, size in units.items() if x >= size), list(units)[-1])
    return f"{number(x / units[name])} {name}"


def row(
    work: str, ours: float, peer: float | str | None, target: str | None, unit: str = "s", **details
) -> Row:
    """One line of ours and a peer's, or of words that say why there is none.

    A target "> x" bounds peer / ours from below, "< x" ours / peer from above, or `ours` itself
    where there is no peer.
    """
    ratio, met = None, None
    if target:
        if isinstance(peer, float | int):
            ratio = peer / ours if target[0] == ">" else ours / peer
        measured, bound = ours if ratio is None else ratio, float(target[1:])
        if ratio is not None or peer is None:
            met = measured > bound if target[0] == ">" else measured < bound
    elif isinstance(peer, float | int):
        ratio = peer / ours
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


def compare(
    work: str, calls: dict[str, harness.Call], target: str | None, repeats: int, **tolerance: float
) -> Row:
    """`calls` are ours, then the peer; both must compute the same numbers."""
    first = harness.seconds(next(iter(calls.values())))
    ours, peer = (numbers(call()) for call in calls.values())
    np.testing.assert_allclose(ours, peer, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})
    times = harness.time_calls(calls, repeats)
    ours_seconds, peer_seconds = (times[name]["median"] for name in calls)
    result = row(work, ours_seconds, peer_seconds, target, times=times)
    return result | {"first call [s]": first} | values(ours[0], peer[0])


def values(ours: float, peer: float) -> Row:
    """Cells of both, with more digits than other numbers."""
    return {"our value": f"{float(ours):.7g}", "its value": f"{float(peer):.7g}"}


def numbers(result: Any) -> np.ndarray:
    """All numbers of a result, one after the other."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result)])


def missing(package: str) -> str | None:
    """Words for the table, if a package is not there."""
    return None if importlib.util.find_spec(package) else f"{package} is not installed"
