"""Tests of the hypothesis H0 that a model is calibrated."""

from calibjax.hypothesis_tests._aggregated import aggregated_skce_test, aggregated_skce_test_of_data
from calibjax.hypothesis_tests._asymptotic import asymptotic_skce_test
from calibjax.hypothesis_tests._block import asymptotic_block_skce_test
from calibjax.hypothesis_tests._calibration import calibration_test, calibration_test_of_data
from calibjax.hypothesis_tests._cme import asymptotic_cme_test
from calibjax.hypothesis_tests._consistency import consistency_test
from calibjax.hypothesis_tests._distribution_free import distribution_free_skce_test
from calibjax.hypothesis_tests._judged_data import at_places, pooled
from calibjax.hypothesis_tests._law_under_h0 import (
    REDRAWN,
    Law,
    describe_law,
    law_under_h0,
    multipliers_of_law,
)
from calibjax.hypothesis_tests._multiplied import lacking
from calibjax.hypothesis_tests._result import CalibrationTestResult
from calibjax.hypothesis_tests._state import SKCEState
from calibjax.hypothesis_tests._target_sets import target_sets
from calibjax.hypothesis_tests._test_locations import sample_test_locations
