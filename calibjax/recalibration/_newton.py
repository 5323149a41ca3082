"""Newton's method for a convex function of few numbers, in NumPy and float64."""

from collections.abc import Callable

import numpy as np

_MOST_STEPS = 60
# The search has converged if a step would lower the function by less.
_DECREMENT = 1e-12


def newton(
    value: Callable[[np.ndarray], float],
    slope_and_curvature: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
) -> tuple[np.ndarray, bool]:
    """The numbers ``[k]`` where a function is least, and whether the search found a minimum.

    A step is halved until the function falls by a tenth of what the slope promises.
    """
    t, least = start, value(start)
    for _ in range(_MOST_STEPS):
        slope, curvature = slope_and_curvature(t)
        step = -np.linalg.solve(curvature, slope)
        decrement = -float(slope @ step)
        if decrement < _DECREMENT:
            return t, True
        length = 1.0
        while (new := value(t + length * step)) > least - 0.1 * length * decrement:
            length /= 2
            if length < 1e-6:
                break
        if not new < least:
            return t, decrement < 1e-8
        t, least = t + length * step, new
    return t, False
