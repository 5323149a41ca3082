"""For whom is a model wrong?  Segments of rows, tested all at once."""

from calibjax.segments._effects import Effects, means_of_ranks
from calibjax.segments._result import Segment, SegmentTestResult
from calibjax.segments._segment_sums import SegmentSums
from calibjax.segments._segment_test import (
    ReadSegments,
    read_segments,
    segment_test,
    segments_tested,
)
from calibjax.segments._segments import Groups, read_columns

__all__ = ["Segment", "SegmentTestResult", "segment_test"]
__dir__ = __all__.copy
