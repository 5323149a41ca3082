"""Maps that know groups of rows: codes of columns, segments, and how logits of each are moved."""

from calibjax.recalibration._groups._coding import Coding as Coding
from calibjax.recalibration._groups._curve import GroupCurve as GroupCurve
from calibjax.recalibration._groups._fit import FittedGroups as FittedGroups
from calibjax.recalibration._groups._fit import fit_groups as fit_groups
from calibjax.recalibration._groups._fit_line import fit_line_groups as fit_line_groups
