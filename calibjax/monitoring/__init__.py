"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._file import (
    as_file,
    check_header,
    header_of,
    read_file,
    replacing,
    with_leaves,
)
from calibjax.monitoring._monitor import CalibrationMonitor
from calibjax.monitoring._streams import stream_pvalues
