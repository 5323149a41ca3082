"""Plots of calibration: each function draws the result of a data function into matplotlib axes.

- Events: `calibration` of `calibration_curve`, `reliability` of `reliability_curve` or
  `corp_curve`; `witness` of `witness_map` for all labels.
- Numbers and lifetimes: `pit` and `pit_difference` of `pit_curve`, `coverage` of `coverage_curve`,
  `residual_location` and `residual_spread` of `residual_map`.
- Survival: `risk` of `risk_curve`.
- Ensembles: `spread_skill` of `spread_skill_curve`.
- Groups: `segments` of `segment_test`.
- All: `null_distribution` of the result of a test, `e_process` of the evidence of a monitor.

Figures made here belong to the caller: they open no windows, and nothing keeps them alive.  In a
notebook a cell that ends with ``plot.pit(curve).figure`` shows one.
"""

from importlib.util import find_spec

if find_spec("matplotlib") is None:
    raise ModuleNotFoundError("calibjax.plot needs matplotlib: pip install 'calibjax[plot]'")

from calibjax.plot._evidence import e_process, null_distribution, segments
from calibjax.plot._maps import residual_location, residual_spread, witness
from calibjax.plot._pit import coverage, pit, pit_difference, spread_skill
from calibjax.plot._reliability import calibration, reliability, risk
from calibjax.plot._style import NotebookFigure, SettledLayout

__all__ = [
    "calibration", "coverage", "e_process", "null_distribution", "pit", "pit_difference",
    "reliability", "residual_location", "residual_spread", "risk", "segments", "spread_skill",
    "witness",
]  # fmt: skip
__dir__ = __all__.copy
