"""How large a calibration error is, and whether one is larger than another one."""

from calibjax.intervals._compare import compare_calibration as compare_calibration
from calibjax.intervals._compare import (
    compare_calibration_of_data as compare_calibration_of_data,
)
from calibjax.intervals._comparison import CalibrationComparison as CalibrationComparison
from calibjax.intervals._confidence_interval import ConfidenceInterval as ConfidenceInterval
from calibjax.intervals._equivalent_temperature import (
    EquivalentTemperature as EquivalentTemperature,
)
from calibjax.intervals._equivalent_temperature import (
    equivalent_temperature as equivalent_temperature,
)
from calibjax.intervals._equivalent_temperature import (
    equivalent_temperature_of_data as equivalent_temperature_of_data,
)
from calibjax.intervals._equivalent_temperature import (
    has_temperature as has_temperature,
)
from calibjax.intervals._equivalent_temperature import (
    temperature_of_errors as temperature_of_errors,
)
from calibjax.intervals._skce_interval import skce_confidence_interval as skce_confidence_interval
from calibjax.intervals._skce_interval import (
    skce_confidence_interval_of_data as skce_confidence_interval_of_data,
)
