"""How errors depend on one covariate: sums of residuals in cells of its values."""

from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._between import Targets
from calibjax._check import check_integer
from calibjax._distribution import Distribution
from calibjax._rows import (
    ColumnCode,
    NamedColumns,
    as_data,
    named_columns,
    typed_column,
)
from calibjax._struct import is_traced, static, struct
from calibjax.resampling import check_resamples
from calibjax.segments import SegmentTestResult, effects_of, segment_test

# With more categories than this, next to none has enough rows.
_MOST_CATEGORIES = 64


@struct
class CovariateCurve:
    """How errors depend on a covariate; see `covariate_curve`.

    The arrays ``[J, c]`` have a row for each statistic, and a column for each cell of the
    covariate.  They are NaN where a cell is too small to say anything.

    Args:
        positions: the median value of the covariate in each cell, ``[c]``; for categories their
            numbers 0, 1, ….
        least, most: the smallest and the largest value in each cell, ``[c]``.
        count: the number of rows in each cell, ``[c]``.
        observed: what was observed, as in `Segment`, ``[J, c]``.
        predicted: what a calibrated model has on average, ``[J, c]``.
        value: observed - predicted, ``[J, c]``.
        interval_low, interval_high: intervals of the true values, ``[J, c]``.
        low, high: a band, where the values of a calibrated model are, ``[J, c]``.
        score: the values on a scale on which they are nearly standard normal for a calibrated
            model, ``[J, c]``.
        significant: whether a value is outside of the band, ``[J, c]``.
        overall: the values of all rows together, ``[J]``.
        pvalue: of the test that the model is calibrated in all cells, and on the whole.
        confidence_level: the probability with which the band holds in all cells, and so do the
            intervals.
        name: what the covariate is called.
        categories: the names of the cells; empty for numbers and times.
        statistics: what the statistics are called, as in `Segment`.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> age = np.linspace(20, 80, 300)
        >>> curve = cj.covariate_curve(
        ...     jax.random.key(0), cj.Bernoulli(np.full(300, 0.2)), age > 68, {"age": age}, n_bins=5
        ... )
        >>> curve.positions.round(), curve.value[curve.statistics.index("rate")].round(1)
        (array([26., 38., 50., 62., 74.]), array([-0.2, -0.2, -0.2, -0.2,  0.8]))
    """

    positions: np.ndarray
    least: np.ndarray
    most: np.ndarray
    count: np.ndarray
    observed: np.ndarray
    predicted: np.ndarray
    value: np.ndarray
    interval_low: np.ndarray
    interval_high: np.ndarray
    low: np.ndarray
    high: np.ndarray
    score: np.ndarray
    significant: np.ndarray
    overall: np.ndarray
    pvalue: float
    confidence_level: float
    name: str = static()
    categories: tuple[str, ...] = static()
    statistics: tuple[str, ...] = static()

    def clearest(self) -> str:
        """The statistic with the largest absolute score in any cell."""
        largest = np.max(np.nan_to_num(np.abs(self.score)), axis=1)
        return self.statistics[int(np.argmax(largest))]


def covariate_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: Targets,
    covariate: NamedColumns,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
) -> CovariateCurve:
    """How far off the model is at which values of a covariate, with simultaneous bands.

    .. math::
        \\text{value}_c = \\frac{\\sum_{i \\in c} w_i r_i}{\\sum_{i \\in c} w_i}

    for the residuals r of a frequency, which are observed minus predicted; the other statistics of
    `segment_test`, such as location, spread and sureness, are those of cells, too.  A cell c is one
    category, or one of n_bins bins of a number, whose ends are quantiles; equal numbers are in one
    bin, and a number with few different values has a cell for each.

    The band says where values lie **if the model is calibrated** given the covariate: targets are
    redrawn from the predictions R = n_resamples times, and the largest score of each data set is
    taken over all statistics, all cells and all rows together.  "A value leaves its band somewhere"
    is an exact test at the level 1 - confidence_level, for independent rows; see `segment_test`,
    also for weights and for rows that depend on each other.

    It is computed outside of jit.  O(n R J c) time for J statistics and c cells.

    Args:
        key: a key of `jax.random`.
        predictions: a batch of n >= 8 predictions of labels, counts or numbers.
        targets: array ``[n]``; class labels are ``0 … m-1``.  Of numbers also `Between`.
        covariate: one column ``[n]`` by its name, such as ``{"age": age}``, or a frame with one:
            numbers, times, or at most 64 categories.  It must be known before the targets, as the
            columns of `calibration_test` with `covariates`, whose ``result.columns`` says which one
            to look at.
        n_bins: the number of bins of a number.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets.
        where: boolean mask ``[n]``; masked rows may hold anything.
        weights: how much each row counts, nonnegative numbers ``[n]``.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other.

    Returns:
        CovariateCurve, of NumPy arrays.  Cells of fewer than 8 rows, or with less than two expected
        events, are NaN.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or value, or a traced one; the
            covariate is unknown in a row, or has one value in all rows.

    See also:
        `segment_test` for groups that have names, `calibjax.plot.covariate` for a picture.

    Example:
        >>> import jax, numpy as np, calibjax as cj
        >>> rng = np.random.default_rng(0)
        >>> height = rng.uniform(size=2000)
        >>> errors = rng.normal(size=2000) + 0.5 * np.sin(2 * np.pi * height)
        >>> predictions = cj.Normal(np.zeros(2000), np.ones(2000))
        >>> column = {"height": height}
        >>> curve = cj.covariate_curve(jax.random.key(0), predictions, errors, column, n_bins=5)
        >>> curve.clearest(), curve.value[0].round(1)
        ('location', array([ 0.3,  0.5, -0. , -0.5, -0.3]))

    Reference: Lin, Wei and Ying, Model-checking techniques based on cumulative residuals,
    Biometrics 2002, for residuals summed over a covariate, beside sums that chance would give.
    """
    if is_traced((predictions, targets, covariate, where, weights)):
        raise TypeError("covariate_curve must be called outside of jit, got traced arguments.")
    data = as_data(predictions, targets, where=where, weights=weights, intervals=True)
    level = float(check_resamples(confidence_level, n_resamples)["confidence_level"])
    cells = _cells_of(covariate, data.counted_rows(), check_integer("n_bins", n_bins, 2))
    result = segment_test(
        key,
        predictions,
        targets,
        # Numbers as text are categories.
        {cells.name: np.char.mod("%04d", cells.places)},
        order=1,
        n_resamples=n_resamples,
        weights=weights,
        clusters=clusters,
        times=times,
        horizon=horizon,
        where=where,
    )
    return _curve(result, cells, level)


class _Cells(NamedTuple):
    """The cells of a column.

    Args:
        name: of the column.
        places: the cell of each row, ``[n]``.
        sizes: the number of rows in each cell, ``[c]``.
        positions, least, most: as in `CovariateCurve`.
        categories: their names, if the column has categories.
    """

    name: str
    places: np.ndarray
    sizes: np.ndarray
    positions: np.ndarray
    least: np.ndarray
    most: np.ndarray
    categories: tuple[str, ...]


def _cells_of(covariate: NamedColumns, kept: np.ndarray, n_bins: int) -> _Cells:
    columns = named_columns("covariate", covariate)
    if len(columns) != 1:
        raise ValueError(f"covariate must be one column, got {', '.join(columns) or 'none'}.")
    ((name, given),) = columns.items()
    column = typed_column(f"column {name} of covariate", given, kept.size, kept, known=True)
    code = ColumnCode.of(name, column, kept, few=n_bins, n_bins=n_bins)
    if code.n_known < 2:
        raise ValueError(f"{column.name} must have two values, got {code.n_known}.")
    if code.n_known > _MOST_CATEGORIES and not column.is_number:
        raise ValueError(
            f"{column.name} must have at most {_MOST_CATEGORIES} categories, got {code.n_known}."
        )
    every = np.where(kept, code.codes(column), -1)
    count = np.bincount(every[kept])
    if not column.is_number:
        numbers = np.arange(count.size)
        return _Cells(name, every, count, numbers, numbers, numbers, code.names(column, every))
    parts = [np.sort(column.values[every == c]) for c in range(count.size)]
    ranges = [(part[part.size // 2], part[0], part[-1]) for part in parts]
    middle, least, most = map(np.array, zip(*ranges, strict=True))
    return _Cells(name, every, count, middle, least, most, ())


def _curve(result: SegmentTestResult, cells: _Cells, level: float) -> CovariateCurve:
    """What the test says of each cell."""
    sums, critical = jax.tree.map(np.asarray, result.sums), result.critical(level)
    n_statistics = len(result.names.statistics)
    found = {
        name: np.full((n_statistics, cells.sizes.size), np.nan)
        for name in ("observed", "predicted", "score", *_ENDS)
    }
    overall, segments = np.full(n_statistics, np.nan), enumerate(result.names.conditions)
    of_cells = {int(level): s for s, conditions in segments for _, level in conditions}
    for j, statistic in enumerate(result.names.statistics):
        with np.errstate(all="ignore"):
            effects = effects_of(statistic, sums, j, critical, result.names.pieces)
        is_tested = sums.is_tested[:, j]
        if is_tested[_ALL_ROWS]:
            overall[j] = effects.observed[_ALL_ROWS] - effects.predicted[_ALL_ROWS]
        for c, s in of_cells.items():
            if not is_tested[s]:
                continue
            observed, predicted, *ends = (float(x[s]) for x in effects)
            found["observed"][j, c], found["predicted"][j, c] = observed, predicted
            found["score"][j, c] = sums.scores[s, j]
            for name, end in zip(_ENDS, ends, strict=True):
                found[name][j, c] = end - predicted
    return CovariateCurve(
        positions=cells.positions,
        least=cells.least,
        most=cells.most,
        count=cells.sizes,
        value=found["observed"] - found["predicted"],
        significant=np.abs(found["score"]) > critical,
        overall=overall,
        pvalue=float(result.pvalue),
        confidence_level=level,
        name=cells.name,
        categories=cells.categories,
        statistics=result.names.statistics,
        **found,
    )


# The ends in the order of `Effects`.
_ENDS = "interval_low", "interval_high", "low", "high"
# The first segment is that of all rows.
_ALL_ROWS = 0
