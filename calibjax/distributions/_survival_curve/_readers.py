"""Survival curves as other packages return them; the packages are never imported."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def times_and_probabilities(curves: Any) -> tuple[Any, Any]:
    """Times ``[K]`` or ``[n, K]`` and probabilities ``[n, K]`` of a frame or of functions."""
    if hasattr(curves, "index") and hasattr(curves, "columns"):
        try:
            return np.asarray(curves.index, float), np.asarray(curves, float).T
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"curves must be numbers, with times as their index: {error}."
            ) from None
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
