"""Pictures of calibration: each function draws the result of a data function into matplotlib axes.

Figures made here belong to the caller: they are no windows, and nothing keeps them alive.
"""

from calibjax.plot._reliability import reliability as reliability
