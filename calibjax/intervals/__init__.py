"""How large a calibration error is, and whether one is larger than another one."""

from calibjax.intervals._compare import compare_calibration
from calibjax.intervals._compare_groups import compare_groups
from calibjax.intervals._comparison import CalibrationComparison
from calibjax.intervals._dependent_interval import sums_of_data
from calibjax.intervals._errors import DrawnErrors, three_moment_errors, two_moment_errors
from calibjax.intervals._estimated import Estimated
from calibjax.intervals._means import Interval, mean_interval, wilson_interval
from calibjax.intervals._norm_intervals import (
    BoundedMeanInterval,
    BoundedNormInterval,
    ConfidenceInterval,
    HasQuantiles,
    IntervalOf,
    MeanInterval,
    NormInterval,
    NormIntervalWithNull,
)
from calibjax.intervals._rare_events import FEW_EVENTS, expected_rare_events, remark_on_rare_events
from calibjax.intervals._sampling import Sampling
from calibjax.intervals._skce_interval import (
    resampled_errors,
    skce_and_interval_of_data,
    skce_confidence_interval,
)
from calibjax.intervals._temperature import (
    EquivalentTemperature,
    equivalent_temperature,
    has_temperature,
    temperature_of_errors,
)
