"""Maps that know groups of rows: codes of columns, segments, and how logits of each are moved."""

from calibjax.recalibration._groups._coding import Coding
from calibjax.recalibration._groups._curve import GroupCurve
from calibjax.recalibration._groups._fit import FittedGroups, fit_groups
from calibjax.recalibration._groups._fit_line import fit_line_groups
