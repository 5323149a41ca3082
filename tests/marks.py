"""Which cases of a test are slow tests."""

import pytest


def slow(these, cases):
    """The cases as parameters of pytest, those in `these` among the slow tests."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] * (case in these),
        )
        for case in cases
    ]


# For tests of which single precision, or double, says all that the other one does.
DTYPES = ["float32", "float64"]
fast_in_float32 = pytest.mark.parametrize("dtype", slow({"float64"}, DTYPES), indirect=True)
fast_in_float64 = pytest.mark.parametrize("dtype", slow({"float32"}, DTYPES), indirect=True)
