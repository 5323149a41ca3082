"""How large a calibration error is, and whether one is larger than another one."""

from calibjax.intervals._compare_calibration import (
    CalibrationComparison,
    compare_calibration,
    compare_groups,
)
from calibjax.intervals._equivalent_temperature import (
    EquivalentTemperature,
    deviation_ratio,
    equivalent_temperature,
    has_temperature,
    temperature_of_errors,
)
from calibjax.intervals._rare_events import FEW_EVENTS, expected_rare_events, remark_on_rare_events
from calibjax.intervals._skce_interval import (
    BoundedMeanInterval,
    BoundedNormInterval,
    ConfidenceInterval,
    DrawnErrors,
    HasQuantiles,
    IntervalOf,
    MeanInterval,
    NormInterval,
    h_and_dependent_sums,
    landmark_interval,
    resampled_errors,
    skce_and_interval,
    skce_confidence_interval,
)

__all__ = [
    "CalibrationComparison", "EquivalentTemperature", "compare_calibration",
    "compare_groups", "equivalent_temperature", "skce_confidence_interval",
]  # fmt: skip
__dir__ = __all__.copy
