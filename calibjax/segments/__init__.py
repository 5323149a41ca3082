"""For whom is a model wrong?  Segments of rows, tested all at once."""

from calibjax.segments._coarse_sizes import means_of_ranks
from calibjax.segments._columns import Groups, read_columns
from calibjax.segments._effects import Effects, effects_of
from calibjax.segments._maxima import SegmentSums
from calibjax.segments._result import Segment, SegmentTestResult, first_of
from calibjax.segments._segment_test import segment_test, segment_test_of_data
