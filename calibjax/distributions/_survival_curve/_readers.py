"""Survival curves as other packages return them; the packages are never imported."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np


def times_and_probabilities(curves: Any) -> tuple[Any, Any]:
    """Times ``[K]`` or ``[n, K]`` and probabilities ``[n, K]`` of a frame or of functions."""
    if hasattr(curves, "index") and hasattr(curves, "columns"):
        try:
            times = np.asarray(curves.index, float)
        except (TypeError, ValueError):
            raise ValueError(_no_times(list(map(str, curves.index)))) from None
        try:
            return times, np.asarray(curves, float).T
        except (TypeError, ValueError) as error:
            raise ValueError(f"curves must be numbers: {error}.") from None
    functions = list(curves) if isinstance(curves, Iterable) else [curves]
    for function in functions:
        if not (callable(function) and hasattr(function, "x")):
            raise TypeError(
                "curves must be a frame with times as its index, or step functions with times x, "
                f"got {type(function).__name__}."
            )
    sizes = sorted({np.size(function.x) for function in functions})
    if len(sizes) != 1:
        raise ValueError(f"curves must have one number of times, got {sizes}.")
    times = np.stack([np.asarray(function.x, float) for function in functions])
    return times, np.stack([np.asarray(function(function.x), float) for function in functions])


def _no_times(names: list[str]) -> str:
    """What to do if the index of a frame holds names, each with one number or not."""
    said = f"curves must have times as their index, got {names[0]}"
    numbers = [re.findall(r"\d+\.?\d*", name) for name in names]
    if any(len(found) != 1 for found in numbers):
        return f"{said}: curves.set_axis(times) sets them."
    times = ", ".join(found[0] for found in numbers[:3]) + (", …" if len(numbers) > 3 else "")
    return f"{said}: curves.set_axis([{times}]) sets them."
