"""How errors depend on one covariate: sums of residuals in cells of its values."""

from typing import Any, Unpack

import jax
import numpy as np

from calibjax._base.check import check_integer
from calibjax._base.struct import is_traced, static, struct
from calibjax._data import (
    ColumnCode,
    Data,
    Distribution,
    NamedColumns,
    RowOptions,
    Targets,
    as_data,
    named_columns,
    typed_column,
)
from calibjax.resampling import check_resamples
from calibjax.segments import effects_of, segment_test

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
    predictions: Distribution | Data,
    targets: Targets | None,
    covariate: NamedColumns,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
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
        predictions, targets: as in `Data`, or one `Data` and None: n >= 8 predictions of labels,
            counts or numbers.
        covariate: one column ``[n]`` by its name, such as ``{"age": age}``, or a frame with one:
            numbers, times, or at most 64 categories.  It must be known before the targets, as the
            columns of `calibration_test` with `covariates`, whose ``result.columns`` says which one
            to look at.
        n_bins: the number of bins of a number.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets.
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

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
    if is_traced((predictions, targets, covariate, rows)):
        raise TypeError("covariate_curve must be called outside of jit, got traced arguments.")
    data = as_data(predictions, targets, intervals=True, **rows)
    level, n_resamples = check_resamples(confidence_level, n_resamples)
    n_bins = check_integer("n_bins", n_bins, 2)
    name, codes, cells = _cells_of(covariate, data.counted_rows(), n_bins)
    # Numbers as text are categories.
    columns = {name: np.char.mod("%04d", codes)}
    options = {"order": 1, "n_resamples": n_resamples}
    result = segment_test(key, predictions, targets, columns, **options, **rows)
    names, sums = result.names, jax.tree.map(np.asarray, result.sums)
    critical = result.critical(float(level))
    with np.errstate(all="ignore"):
        effects = [
            effects_of(statistic, sums, j, critical, names.pieces)
            for j, statistic in enumerate(names.statistics)
        ]
    # Of each segment, of which the first one is all rows: numbers ``[J, 7, S]``.
    numbers = np.concatenate([np.asarray(effects), sums.scores.T[:, None]], axis=1)
    numbers = np.where(sums.is_tested.T[:, None], numbers, np.nan)
    segments = {
        int(cell): s for s, conditions in enumerate(names.conditions) for _, cell in conditions
    }
    in_cells = np.full((*numbers.shape[:2], cells["count"].size), np.nan)
    in_cells[..., list(segments)] = numbers[..., list(segments.values())]
    observed, predicted, *ends, score = np.moveaxis(in_cells, 1, 0)
    interval_low, interval_high, low, high = (end - predicted for end in ends)
    return CovariateCurve(
        observed=observed,
        predicted=predicted,
        value=observed - predicted,
        interval_low=interval_low,
        interval_high=interval_high,
        low=low,
        high=high,
        score=score,
        significant=np.abs(score) > critical,
        overall=numbers[:, 0, 0] - numbers[:, 1, 0],
        pvalue=float(result.pvalue),
        confidence_level=float(level),
        name=name,
        statistics=names.statistics,
        **cells,
    )


def _cells_of(
    covariate: NamedColumns, kept: np.ndarray, n_bins: int
) -> tuple[str, np.ndarray, dict[str, Any]]:
    """The name of the column, the cell of each row ``[n]``, and the fields that describe cells."""
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
    codes = np.where(kept, code.codes(column), -1)
    count = np.bincount(codes[kept])
    ranges = (np.arange(count.size),) * 3
    categories: tuple[str, ...] = ()
    if column.is_number:
        parts = [np.sort(column.values[codes == c]) for c in range(count.size)]
        ranges = tuple(np.array([part[[part.size // 2, 0, -1]] for part in parts]).T)
    else:
        categories = code.names(column, codes)
    cells = dict(zip(("positions", "least", "most"), ranges, strict=True))
    return name, codes, {"count": count, "categories": categories, **cells}
