"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._monitor import CalibrationMonitor, holm_pvalues

__all__ = ["CalibrationMonitor", "holm_pvalues"]
__dir__ = __all__.copy
