"""How large a calibration error is, and whether one is larger than another one."""

from calibjax.intervals._compare import compare_calibration as compare_calibration
from calibjax.intervals._compare_groups import compare_groups as compare_groups
from calibjax.intervals._comparison import CalibrationComparison as CalibrationComparison
from calibjax.intervals._dependent_interval import sums_of_data as sums_of_data
from calibjax.intervals._errors import DrawnErrors as DrawnErrors
from calibjax.intervals._errors import three_moment_errors as three_moment_errors
from calibjax.intervals._errors import two_moment_errors as two_moment_errors
from calibjax.intervals._norm_intervals import BoundedMeanInterval as BoundedMeanInterval
from calibjax.intervals._norm_intervals import BoundedNormInterval as BoundedNormInterval
from calibjax.intervals._norm_intervals import ConfidenceInterval as ConfidenceInterval
from calibjax.intervals._norm_intervals import HasQuantiles as HasQuantiles
from calibjax.intervals._norm_intervals import IntervalOf as IntervalOf
from calibjax.intervals._norm_intervals import MeanInterval as MeanInterval
from calibjax.intervals._norm_intervals import NormInterval as NormInterval
from calibjax.intervals._norm_intervals import NormIntervalWithNull as NormIntervalWithNull
from calibjax.intervals._rare_events import FEW_EVENTS as FEW_EVENTS
from calibjax.intervals._rare_events import expected_rare_events as expected_rare_events
from calibjax.intervals._rare_events import remark_on_rare_events as remark_on_rare_events
from calibjax.intervals._skce_interval import resampled_errors as resampled_errors
from calibjax.intervals._skce_interval import skce_and_interval_of_data as skce_and_interval_of_data
from calibjax.intervals._skce_interval import skce_confidence_interval as skce_confidence_interval
from calibjax.intervals._temperature import EquivalentTemperature as EquivalentTemperature
from calibjax.intervals._temperature import equivalent_temperature as equivalent_temperature
from calibjax.intervals._temperature import has_temperature as has_temperature
from calibjax.intervals._temperature import temperature_of_errors as temperature_of_errors
