"""How often tests reject, as numbers and as cells of a table."""

from collections.abc import Collection, Mapping

import numpy as np


def rates_of(
    found: Mapping[str, np.ndarray], tests: Collection[str], levels: Collection[float]
) -> dict[str, dict[str, float]]:
    """The share of p-values at most each level, of each of the tests that was made."""
    return {
        # A p-value of single precision may be an ulp above the level that it is.
        test: {str(level): float(np.mean(values <= level + 1e-6)) for level in levels}
        for test, values in found.items()
        if test in tests
    }


def cell(rate: float | None) -> str:
    """The rate in a cell, which is empty where there is none."""
    return "" if rate is None else f"{rate:.3f}"
