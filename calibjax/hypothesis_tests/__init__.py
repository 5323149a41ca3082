"""Tests of the hypothesis H0 that a model is calibrated."""

from calibjax.hypothesis_tests._aggregated_test import aggregated_skce_test, calibration_test
from calibjax.hypothesis_tests._asymptotic import asymptotic_skce_test
from calibjax.hypothesis_tests._block import (
    SKCEState,
    asymptotic_block_skce_test,
    distribution_free_skce_test,
)
from calibjax.hypothesis_tests._cme import asymptotic_cme_test, sample_test_locations
from calibjax.hypothesis_tests._consistency import consistency_test
from calibjax.hypothesis_tests._result import CalibrationTestResult

__all__ = [
    "CalibrationTestResult", "SKCEState", "aggregated_skce_test", "asymptotic_block_skce_test",
    "asymptotic_cme_test", "asymptotic_skce_test", "calibration_test", "consistency_test",
    "distribution_free_skce_test", "sample_test_locations",
]  # fmt: skip
__dir__ = __all__.copy
