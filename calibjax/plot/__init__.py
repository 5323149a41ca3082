"""Pictures of calibration: each function draws the result of a data function into matplotlib axes.

Figures made here belong to the caller: they are no windows, and nothing keeps them alive.
"""

from calibjax.plot._e_process import e_process as e_process
from calibjax.plot._pit import coverage as coverage
from calibjax.plot._pit import pit as pit
from calibjax.plot._pit import pit_difference as pit_difference
