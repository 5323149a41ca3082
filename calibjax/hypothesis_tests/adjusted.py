"""P-values of several tests, such as of groups of rows, that are adjusted for their number."""

from collections.abc import Sequence

import numpy as np

from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.nulls.ranks import as_multiple, step_down


def adjusted_pvalues(tests: Sequence[CalibrationTestResult]) -> list[float]:
    """The p-values of tests with the same number of draws, adjusted by `step_down`.

    Draw b of all tests is one data set.  Tests without a p-value, NaN, do not count.
    """
    found = np.array([x.pvalue for x in tests], np.float64)
    values = np.array([[x.statistic, *np.asarray(x.null_distribution)] for x in tests])
    known = ~np.isnan(found)
    # Draws that are equal to the data up to rounding count in the p-value of each test.
    found[known] = np.maximum(step_down(values[known]), found[known])
    return [as_multiple(p, values.shape[1] - 1) for p in found]
