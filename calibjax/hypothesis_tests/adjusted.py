"""P-values of several tests, such as of groups of rows, that are adjusted for their number."""

from collections.abc import Sequence

import numpy as np

from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.nulls.ranks import as_multiple, step_down


def adjusted_pvalues(tests: Sequence[CalibrationTestResult]) -> list[float]:
    """The p-values of tests with the same number of draws, adjusted by `step_down`.

    Draw b of all tests is one data set.  Tests without a p-value, NaN, do not count.
    """
    values, found = np.array(_scores(tests)), np.array([x.pvalue for x in tests], np.float64)
    known = ~np.isnan(found)
    if np.sum(known) > 1:
        # Draws that are equal to the data up to rounding count in the p-value of each test.
        found[known] = np.maximum(step_down(values[known]), found[known])
    return [as_multiple(p, values.shape[2] - 1) for p in found]


def _scores(tests: Sequence[CalibrationTestResult]) -> list[np.ndarray]:
    """The scores of the kernels ``[K, 1 + B]`` of each test, the observed ones first.

    Where tests have different numbers of kernels, it is the largest score alone.
    """
    results = [x.kernels for x in tests if x.kernels is not None]
    if len(results) == len(tests) and len({np.size(x.scores) for x in results}) == 1:
        return [np.column_stack([x.scores, np.asarray(x.draws)]) for x in results]
    return [np.append(x.statistic, np.asarray(x.null_distribution))[None] for x in tests]
