"""Maps of the unit line for predictions of numbers: the map, its fits, and the choice of one."""

from calibjax.recalibration._unit_line._auto import fit_line
from calibjax.recalibration._unit_line._conditional import ConditionalLine, median_and_spread
from calibjax.recalibration._unit_line._conformal import ConformalLine, fit_conformal
from calibjax.recalibration._unit_line._counts import are_complete
from calibjax.recalibration._unit_line._fits import LEVELS, LINES
from calibjax.recalibration._unit_line._hidden import hidden_below
from calibjax.recalibration._unit_line._line import (
    UnitLine,
    check_numbers_to_mend,
    known_levels,
    mended,
    quantiles_at,
)
from calibjax.recalibration._unit_line._rows import (
    LineRows,
    at_levels,
    beyond_quantiles,
    distances_of,
    seen_cells,
)
