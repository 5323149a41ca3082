"""Monitoring: is a model still calibrated, asked after every batch."""

from calibjax.monitoring._file import as_file as as_file
from calibjax.monitoring._file import check_header as check_header
from calibjax.monitoring._file import header_of as header_of
from calibjax.monitoring._file import read_file as read_file
from calibjax.monitoring._file import replacing as replacing
from calibjax.monitoring._file import with_leaves as with_leaves
from calibjax.monitoring._monitor import CalibrationMonitor as CalibrationMonitor
from calibjax.monitoring._streams import stream_pvalues as stream_pvalues
