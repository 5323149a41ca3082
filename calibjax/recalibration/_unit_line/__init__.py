"""Maps of the unit line for predictions of numbers: the map, its fits, and the choice of one."""

from calibjax.recalibration._unit_line._auto import fit_line as fit_line
from calibjax.recalibration._unit_line._conditional import ConditionalLine as ConditionalLine
from calibjax.recalibration._unit_line._conditional import (
    median_and_spread as median_and_spread,
)
from calibjax.recalibration._unit_line._conformal import ConformalLine as ConformalLine
from calibjax.recalibration._unit_line._conformal import fit_conformal as fit_conformal
from calibjax.recalibration._unit_line._counts import are_complete as are_complete
from calibjax.recalibration._unit_line._fits import LEVELS as LEVELS
from calibjax.recalibration._unit_line._fits import LINES as LINES
from calibjax.recalibration._unit_line._hidden import hidden_below as hidden_below
from calibjax.recalibration._unit_line._line import UnitLine as UnitLine
from calibjax.recalibration._unit_line._line import check_numbers_to_mend as check_numbers_to_mend
from calibjax.recalibration._unit_line._line import known_levels as known_levels
from calibjax.recalibration._unit_line._line import mended as mended
from calibjax.recalibration._unit_line._line import quantiles_at as quantiles_at
from calibjax.recalibration._unit_line._rows import LineRows as LineRows
from calibjax.recalibration._unit_line._rows import at_levels as at_levels
from calibjax.recalibration._unit_line._rows import distances_of as distances_of
from calibjax.recalibration._unit_line._rows import seen_cells as seen_cells
