"""For whom is a model wrong?  Segments of rows, tested all at once."""

from calibjax.segments._coarse_sizes import means_of_ranks as means_of_ranks
from calibjax.segments._columns import Groups as Groups
from calibjax.segments._columns import read_columns as read_columns
from calibjax.segments._effects import Effects as Effects
from calibjax.segments._effects import effects_of as effects_of
from calibjax.segments._maxima import SegmentSums as SegmentSums
from calibjax.segments._result import Segment as Segment
from calibjax.segments._result import SegmentTestResult as SegmentTestResult
from calibjax.segments._result import first_of as first_of
from calibjax.segments._segment_test import segment_test as segment_test
from calibjax.segments._segment_test import segment_test_of_data as segment_test_of_data
