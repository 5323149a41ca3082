"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._monitor import CalibrationMonitor, header_of
from calibjax.monitoring._streams import stream_pvalues
