"""How large a calibration error is, and whether one is larger than another one."""

from calibjax.intervals._compare_calibration import (
    CalibrationComparison,
    compare_calibration,
    compare_groups,
)
from calibjax.intervals.skce_interval import skce_confidence_interval
from calibjax.intervals.temperatures import EquivalentTemperature, equivalent_temperature

__all__ = [
    "CalibrationComparison", "EquivalentTemperature", "compare_calibration",
    "compare_groups", "equivalent_temperature", "skce_confidence_interval",
]  # fmt: skip
__dir__ = __all__.copy
