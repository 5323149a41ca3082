"""Isotonic regression, with SciPy, outside of jit."""

import numpy as np


def isotonic_frequencies(events: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The nondecreasing probabilities that are nearest to the frequencies, ``[u]``.

    They minimise sum_u count_u (x_u - events_u / count_u)^2, where x is ordered as the forecasts.
    Counts, and events among them, may be sums of weights.
    """
    # These parts of SciPy would make `import calibjax` a third of a second longer.
    from scipy.optimize import isotonic_regression

    return np.clip(isotonic_regression(events / count, weights=count).x, 0.0, 1.0)
