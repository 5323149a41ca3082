"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._holm_pvalues import holm_pvalues
from calibjax.monitoring._monitor import CalibrationMonitor
