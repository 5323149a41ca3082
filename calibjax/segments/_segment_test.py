"""Is a model calibrated for everyone?  A test of all segments of some columns at once."""

from typing import NamedTuple, Unpack

import jax
import numpy as np

from calibjax._base.check import check_integer, check_key
from calibjax._base.compile import bucket, first_rows
from calibjax._base.parameters import family_name
from calibjax._data.capabilities import pit_partition
from calibjax._data.data import Data, RowOptions, as_data
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Targets
from calibjax._data.padding import padded
from calibjax.nulls.sampler import NullSampler, pits_as_targets, pooled
from calibjax.residuals.readable import statistics_of
from calibjax.segments import _segments
from calibjax.segments._result import Names, SegmentTestResult
from calibjax.segments._segment_sums import segment_sums
from calibjax.segments._segments import Groups


def segment_test(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    groups: Groups | None = None,
    *,
    order: int = 2,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> SegmentTestResult:
    """Tests for which segments of rows a model is wrong, with exact multiplicity.

    A segment is the rows that have the same levels of up to `order` columns of `groups`, such as
    region = north and lead time = 3; the set of all rows is also one.  In each, interpretable sums
    of residuals are compared with their distribution under the model:

    - events: the rate, and the calibration slope, that of logits;
    - classes: the frequency of each of up to 20 classes, the accuracy of the most probable class,
      and the calibration slope;
    - numbers, counts, ordered classes, samples and quantiles: location, spread around the location
      of the segment, and the coverage of central 90 % intervals, or of the two levels of
      quantiles that are nearest to them.

    With the sum S of a segment and its mean 0, variance and skewness under the model, z brings
    S to a scale on which it is nearly standard normal (Wilson and Hilferty).  The targets are
    redrawn from the predictions R = n_resamples times, and z_b of all segments and statistics is
    computed of each data set b.  With :math:`M_b = \\max |z_b|`,

    .. math::
        p = \\frac{1 + \\#\\{b : M_b \\ge |z|\\}}{R + 1}

    is the p-value of a segment and statistic, adjusted for all others, however they overlap.  The
    level is a theorem: if the model is calibrated given predictions and groups, and rows are
    independent given these, any p-value of the table is at most a with probability at most a, at
    every number of rows and any event rate.

    Segments with too few expected events, that is a variance of their number below 2, are not
    tested, nor are those with the same rows as a shorter one.  Predictions that are samples are
    tested by exchange, and `Quantiles` between their levels, as in `aggregated_skce_test`.
    **Dependent rows**, in clusters or over times, are compared with turns of the observed
    residuals, as in `aggregated_skce_test`, and each sum is divided by its root mean square over
    all turns.  The spread is then tested by the normal scores of |2 U - 1|, whose sums are
    symmetric, and coverage is not tested.  A target with predicted probability 0 counts as one at
    the level 0.00001 or 0.99999.

    O(n S J n_resamples) time for S segments and J statistics, as products of matrices; memory
    depends on neither n nor n_resamples.  Rows on several devices stay where they are.

    Args:
        key: a key of `jax.random`; draw r of a row depends only on it, r and the number of the row
            among the kept rows.
        predictions, targets: as in `Data`, or one `Data`: n >= 8 rows of labels, counts or numbers,
            which may be `IntervalCensored`.
        groups: columns ``[n]`` by their names: a dict, or a frame; None for those of `Data`.
            Texts, booleans, and numbers and times with at most 12 different values are categories,
            and others are cut at their quartiles; missing values are a level.  Columns with one
            level, with a different one in each row, or with more than 256 are omitted, with a note.
            Groups must be known before the targets.
        order: the maximum number of columns of a segment.
        n_resamples: R; p is a multiple of 1 / (R + 1).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        SegmentTestResult.  Inside jit a bad value makes all numbers NaN.

    Raises:
        TypeError: predictions of vectors, or known by their scores only; groups that are not a
            mapping or traced; another wrong type.
        ValueError: an argument of the wrong shape or, where it is concrete, value; no column makes
            segments, or all make more than 65536.

    See also:
        `calibration_test`, `evaluate`.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> rng = np.random.default_rng(0)
        >>> station, lead = rng.choice(list("ABCDE"), 1000), rng.integers(1, 4, 1000)
        >>> errors = rng.normal(size=1000) * np.where(station == "C", 1.4, 1.0)
        >>> predictions = cj.Normal(np.zeros(1000), np.ones(1000))
        >>> groups = {"station": station, "lead": lead}
        >>> result = cj.segment_test(jax.random.key(0), predictions, errors, groups)
        >>> print(f"{result.segments[0]}, p = {result.segments[0].pvalue:.3g}")
        C, under-dispersive: predicted spread 31 % too small, n = 205, p = 0.001

    Reference: Westfall and Young, Resampling-based multiple testing, 1993, for the maximum; Wilson
    and Hilferty, The distribution of chi-square, PNAS 1931.
    """
    check_key(key)
    n_resamples = check_integer("n_resamples", n_resamples, 1)
    order = check_integer("order", order, 1)
    data = as_data(predictions, targets, intervals=True, **rows)
    return segments_tested(key, data, read_segments(data, groups, order), n_resamples)


class ReadSegments(NamedTuple):
    """The columns of groups, those that are left out and why, and the rows of each segment."""

    columns: list[_segments.Column]
    left_out: dict[str, str]
    segments: dict[_segments.Conditions, int]
    order: int


def read_segments(data: Data, groups: Groups | None, order: int) -> ReadSegments:
    """The segments that `segment_test` tests; its errors of predictions and groups."""
    if not data.predictions.is_ordered:
        if data.is_censored:
            raise TypeError("targets of labels must be an array, got IntervalCensored.")
        if not isinstance(data.predictions, Labels):
            raise TypeError(
                "predictions must be of labels, counts or real numbers, got "
                f"{family_name(data.predictions)}; of vectors, take one coordinate."
            )
    kept = data.counted_rows()
    groups = data.groups if groups is None else groups
    columns, left_out = _segments.read_columns({} if groups is None else groups, kept)
    segments = _segments.segments_of(columns, kept, order)
    if not segments:
        raise ValueError(f"where and weights must keep at least 8 rows, got {kept.sum()}.")
    return ReadSegments(columns, left_out, segments, order)


def segments_tested(
    key: jax.Array, data: Data, read: ReadSegments, n_resamples: int
) -> SegmentTestResult:
    """`segment_test` of segments that are read."""
    n, classes, (columns, left_out, segments, order) = data.n, data.classes, read
    codes = np.stack([column.codes for column in columns], axis=1)
    forecasts = data.predictions
    data = pits_as_targets(key, pooled(padded(data)))
    # What fills up the rows is masked, and what fills up the columns has no segments.
    filling = (0, data.n - n), (0, bucket(len(columns)) - len(columns))
    sampler = NullSampler.of(data)
    shared = key, _segments.table_of(segments, order), np.float32(_segments.LEAST_VARIANCE)
    rows = data, np.pad(codes, filling)
    found, statistic, pvalue, maxima = segment_sums(shared, rows, n_resamples, sampler)
    pairs = [[(columns[c], level) for c, level in chosen] for chosen in segments]
    names = Names(
        segments=tuple(", ".join(c.phrases[k] for c, k in x) or _segments.ALL_ROWS for x in pairs),
        conditions=tuple(tuple((c.name, c.levels[k]) for c, k in x) for x in pairs),
        statistics=statistics_of(forecasts).names,
        levels=tuple((column.name, column.levels) for column in columns),
        left_out=tuple(left_out.items()),
        cut=tuple(column.name for column in columns if column.is_cut),
        partition=pit_partition(forecasts),
        classes=None if classes is None else tuple(classes),
    )
    return SegmentTestResult(
        statistic=statistic,
        pvalue=pvalue,
        null_distribution=maxima,
        # What fills up the segments is not tested.
        sums=first_rows(found, len(segments)),
        n_rows=np.array(list(segments.values()), np.int32),
        codes=codes,
        names=names,
        method=f"segment_test, {n_resamples} {sampler.describe(data)}",
    )
