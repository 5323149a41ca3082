"""For whom a model is wrong: segments.

Calibration within a group is what is tested: whether its targets follow its predictions.  That two
groups differ, or that a model is fair to them, is another question, and no words here answer it.
"""

from calibjax._data.data import Data
from calibjax.evaluation._rows import ZERO_PROBABILITY
from calibjax.evaluation._section import N_RESAMPLES, Case, Section
from calibjax.segments import Segment, SegmentTestResult, segments_tested


def worst_segment(result: SegmentTestResult, level: float) -> Segment | None:
    """The clearest segment whose error is not that of all rows; None if none is significant.

    A model that is wrong on the whole is wrong in many segments.  One of these stands out if its
    simultaneous interval excludes the value of all rows, or if that value is not significant.
    """
    rejected = result.rejected(level)
    of_all = {x.statistic: x.value for x in rejected if not x.conditions}
    for segment in rejected:
        low, high = segment.interval
        if segment.conditions and not low <= of_all.get(segment.statistic, 0.0) <= high:
            return segment
    return None


def segments_in_words(result: SegmentTestResult | None, level: float) -> str | None:
    """The worst segment in words, for a verdict; None if none stands out."""
    segment = None if result is None else worst_segment(result, level)
    if result is None or segment is None:
        return None
    return f"clearest segment: {segment}, {result.adjusted(segment)}"


class _Segments(Section[SegmentTestResult | None]):
    """The result of `segment_test` of the groups; None without groups or a test."""

    def compute(self, case: Case) -> SegmentTestResult | None:
        if case.groups is None or case.why_not_tested is not None:
            return None
        return self.of_data(case, case.data)

    def of_data(self, case: Case, data: Data) -> SegmentTestResult:
        """The result for other predictions of the same rows."""
        assert case.groups is not None
        return segments_tested(case.random_keys.segments, data, case.groups, N_RESAMPLES)

    def clause(self, case: Case) -> str | None:
        if case.rejected and ZERO_PROBABILITY.is_all(case):
            return None
        return segments_in_words(self.of(case), case.level)

    def advice(self, case: Case) -> str | None:
        if case.data.is_censored or self.clause(case) is None:
            return None
        return f"to correct segments, use {recalibration_of_segments(case)}"


SEGMENTS = _Segments()


def recalibration_of_segments(case: Case) -> str:
    """What recalibrates segments."""
    return case.said_as("fit_recalibrator(groups=...)", "calibjax recalibrate --segments")
