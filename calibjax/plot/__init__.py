"""Pictures of calibration: each function draws the result of a data function into matplotlib axes.

- Labels: `reliability` of `reliability_curve` or `corp_curve`, `witness` of `witness_map`.
- Numbers and lifetimes: `pit` and `pit_difference` of `pit_curve`, `coverage` of `coverage_curve`,
  `residual_location` and `residual_spread` of `residual_map`.
- Groups: `segments` of `segment_test`.
- All: `null_distribution` of the result of a test, `e_process` of the evidence of a monitor.

Figures made here belong to the caller: they are no windows, and nothing keeps them alive.  In a
notebook a cell that ends with ``plot.pit(curve).figure`` shows one.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ModuleNotFoundError("calibjax.plot needs matplotlib: pip install 'calibjax[plot]'")

from calibjax.plot._evidence import e_process as e_process
from calibjax.plot._evidence import null_distribution as null_distribution
from calibjax.plot._evidence import segments as segments
from calibjax.plot._maps import residual_location as residual_location
from calibjax.plot._maps import residual_spread as residual_spread
from calibjax.plot._maps import witness as witness
from calibjax.plot._pit import coverage as coverage
from calibjax.plot._pit import pit as pit
from calibjax.plot._pit import pit_difference as pit_difference
from calibjax.plot._reliability import reliability as reliability
from calibjax.plot._style import NotebookFigure as NotebookFigure
from calibjax.plot._style import SettledLayout as SettledLayout
