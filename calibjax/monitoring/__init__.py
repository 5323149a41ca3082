"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._file import replacing as replacing
from calibjax.monitoring._monitor import CalibrationMonitor as CalibrationMonitor
