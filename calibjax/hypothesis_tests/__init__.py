"""Tests of the hypothesis H0 that a model is calibrated."""

from calibjax.hypothesis_tests._aggregated import aggregated_skce_test as aggregated_skce_test
from calibjax.hypothesis_tests._aggregated import (
    aggregated_skce_test_of_data as aggregated_skce_test_of_data,
)
from calibjax.hypothesis_tests._asymptotic import asymptotic_skce_test as asymptotic_skce_test
from calibjax.hypothesis_tests._block import (
    asymptotic_block_skce_test as asymptotic_block_skce_test,
)
from calibjax.hypothesis_tests._calibration import calibration_test as calibration_test
from calibjax.hypothesis_tests._calibration import (
    calibration_test_of_data as calibration_test_of_data,
)
from calibjax.hypothesis_tests._cme import asymptotic_cme_test as asymptotic_cme_test
from calibjax.hypothesis_tests._consistency import consistency_test as consistency_test
from calibjax.hypothesis_tests._distribution_free import (
    distribution_free_skce_test as distribution_free_skce_test,
)
from calibjax.hypothesis_tests._judged_data import at_places as at_places
from calibjax.hypothesis_tests._judged_data import pooled as pooled
from calibjax.hypothesis_tests._law_under_h0 import REDRAWN as REDRAWN
from calibjax.hypothesis_tests._law_under_h0 import Law as Law
from calibjax.hypothesis_tests._law_under_h0 import describe_law as describe_law
from calibjax.hypothesis_tests._law_under_h0 import law_under_h0 as law_under_h0
from calibjax.hypothesis_tests._law_under_h0 import multipliers_of_law as multipliers_of_law
from calibjax.hypothesis_tests._multiplied import lacking as lacking
from calibjax.hypothesis_tests._result import CalibrationTestResult as CalibrationTestResult
from calibjax.hypothesis_tests._state import SKCEState as SKCEState
from calibjax.hypothesis_tests._target_sets import target_sets as target_sets
from calibjax.hypothesis_tests._test_locations import sample_test_locations as sample_test_locations
