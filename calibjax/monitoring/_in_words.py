"""What a monitor is of, in words: what its file must agree with."""

import dataclasses
from typing import Any

import jax

from calibjax._struct import is_array, unwrapped

# The number of the version changes with what a file holds.
_SCHEMA, _VERSION = "calibjax.CalibrationMonitor", 1


def header_of(monitor: Any) -> dict[str, Any]:
    """What a file says of a monitor, next to its numbers."""
    return {
        "schema": _SCHEMA,
        "version": _VERSION,
        "family": structure_in_words(monitor.landmarks),
        "kernels": structure_in_words(monitor.kernels),
        "lag": monitor.lag,
    }


def structure_in_words(node: Any) -> str:
    """The structure of a pytree: names of classes and functions, and options, but no numbers."""
    node = unwrapped(node)
    if isinstance(node, jax.tree_util.Partial):
        return _in_brackets("Partial", [node.func, *node.args, *node.keywords.values()])
    if isinstance(node, (list, tuple)):
        return _in_brackets("", node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        fields = [(x, getattr(node, x.name)) for x in dataclasses.fields(node)]
        options = [f"{x.name}={value}" for x, value in fields if x.metadata.get("static")]
        parts = [value for x, value in fields if not x.metadata.get("static")]
        return _in_brackets(type(node).__name__, parts, options)
    return getattr(node, "__name__", type(node).__name__)


def _in_brackets(name: str, nodes: Any, options: list[str] | None = None) -> str:
    parts = [structure_in_words(x) for x in nodes if not (x is None or is_array(x))]
    inside = ", ".join([*parts, *(options or [])])
    return f"{name}({inside})" if inside else name
