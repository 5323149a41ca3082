"""Curves of the PIT, which is uniform for a calibrated model: histogram, ECDF and coverage."""

import functools
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.compile import quick_jit
from calibjax._base.sharding import on_all_rows
from calibjax._base.struct import rows_of, struct, widest_dtype
from calibjax._data.data import Data, RowOptions, Rows, clean
from calibjax._data.distribution import Distribution, Labels
from calibjax._data.interval_censored import Targets
from calibjax._loops.random_numbers import folded
from calibjax.curves._residual_sums import (
    Parts,
    Resamples,
    ResidualSums,
    resamples_of,
    sums_in_parts,
)
from calibjax.estimators import UniformBinning
from calibjax.nulls.bands import Bins, distribution_of_cells, fractions, redrawn_uniform_counts
from calibjax.nulls.ranks import critical_value
from calibjax.nulls.sampler import pits_as_targets
from calibjax.scores import numbers_as_data, pit_and_interval
from calibjax.scores.pit_intervals import drawn_pit_interval


def uniform_counts(
    u: jax.Array, where: jax.Array | None, n_cells: int
) -> tuple[jax.Array, jax.Array]:
    """How many kept rows have u in (j / n_cells, (j + 1) / n_cells]; a NaN is in no cell.

    Beside it stands 1, or NaN if a kept row is NaN or no row is kept, in the dtype of u.
    """
    kept = jnp.ones(u.shape, bool) if where is None else where
    unknown = jnp.isnan(u)
    cells = jnp.where(kept & ~unknown, UniformBinning(n_cells).intervals(u), n_cells)
    counts = jnp.zeros(n_cells, jnp.int32).at[cells].add(1, mode="drop")
    is_known = jnp.any(kept) & ~jnp.any(unknown & kept)
    return counts, jnp.where(is_known, 1.0, jnp.nan).astype(u.dtype)


def cumulative(counts: jax.Array) -> jax.Array:
    """How many numbers the first k cells hold, for k = 0, …, along the last axis."""
    sums = jnp.cumsum(counts, axis=-1, dtype=jnp.int32)
    return jnp.pad(sums, [(0, 0)] * (counts.ndim - 1) + [(1, 0)])


# Minimum number of cells of the grid on which the distribution function is evaluated.
_LEAST_CELLS = 100


@struct
class PITCurve:
    """The histogram of the PIT and its distribution function; see `pit_curve`.

    Args:
        edges: the ends of the bins of the histogram, ``[b + 1]``.
        count: the number of rows in each bin, ``[b]``; of `IntervalCensored` targets parts of rows
            count, and with weights their share of the weight, times all rows.
        density: the height of the histogram, near 1 for a calibrated model, ``[b]``.
        pointwise_low, pointwise_high: a band of heights that holds for each bin alone, ``[b]``.
        density_low, density_high: a band of heights that holds for all bins at once, ``[b]``.
        grid: numbers z from 0 to 1, ``[g]``.
        difference: the fraction of rows with a PIT of at most z, minus z, ``[g]``.
        difference_low, difference_high: a band that holds on the whole grid at once, ``[g]``.
        confidence_level: the probability with which each band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
        >>> targets = jnp.array([-0.7, -0.1, 0.2, 0.6])  # the PIT is 0.24, 0.46, 0.58, 0.73
        >>> curve = cj.pit_curve(jax.random.key(0), predictions, targets, n_bins=5)
        >>> curve.count.tolist(), curve.density.round(2).tolist()
        ([0, 1, 2, 1, 0], [0.0, 1.25, 2.5, 1.25, 0.0])
    """

    edges: jax.Array
    count: jax.Array
    density: jax.Array
    pointwise_low: jax.Array
    pointwise_high: jax.Array
    density_low: jax.Array
    density_high: jax.Array
    grid: jax.Array
    difference: jax.Array
    difference_low: jax.Array
    difference_high: jax.Array
    confidence_level: jax.Array


def pit_curve(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: Targets | None = None,
    *,
    n_bins: int = 20,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> PITCurve:
    """The histogram of the PIT, and its distribution function minus the diagonal, with bands.

    .. math::
        d_b = \\frac{B}{n} \\#\\{i : u_i \\in (\\tfrac{b - 1}{B}, \\tfrac{b}{B}]\\}, \\qquad
        D(z) = \\frac{1}{n} \\#\\{i : u_i \\le z\\} - z

    of the probability integral transform u_i of `pit`, in B = n_bins bins, and for z on an even
    grid of at least 100 cells.  The histogram of a calibrated model is flat; it is a U for one that
    is over-confident and a hump for one that is under-confident.  Both may hide errors that cancel
    between predictions, which `calibration_test` sees.

    The bands say where the curves lie **if the model is calibrated**: then u are n independent
    uniform numbers, whose counts K are redrawn R = n_resamples times.  The distance of a count
    with the mean n p is

    .. math::
        T = 2 n \\, \\mathrm{KL}(K / n \\| p),

    and the critical distance of a simultaneous band is a quantile of the largest distance of all
    bins, or on the whole grid.  So "the curve leaves the band somewhere" is an exact test of
    calibration at the level 1 - confidence_level: the probability under a calibrated model is at
    most that, and equal up to ties and steps of 1 / (R + 1).  Each of the two is a test by itself.
    The pointwise band is one for each bin of the histogram alone, the same for all of them, from
    all redrawn counts.  Only a curve strictly outside leaves a band.

    **`IntervalCensored` targets** are spread evenly over the interval from F(low) to
    F(high), where u is uniform given what is known: the mean histogram of a calibrated model is
    still flat, whatever hides its targets, if that is independent of the target given the
    prediction.  The distance is then |K - n p| in units of its deviation under the model.  If
    `censored_at` is known of all rows, draws of u are hidden in the same way, and the test of the
    simultaneous band is exact.  Else the observed parts of the rows, less their means, are given
    random signs and sizes, as in `calibration_test`: right for large n, and cautious if events are
    few.  Rows are not moved to where others had an event, as in the estimate of Turnbull.

    **Rows with weights** count as much in all sums, and those that depend on each other, in
    clusters or over times, have random signs and sizes that they share, as in `calibration_test`.
    With both the distance is that of `IntervalCensored` targets.  With weights alone the u are
    redrawn, and the test is exact.

    Args:
        key: a key of `jax.random`.
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of labels, which are
            ordered as numbers, of counts or of real numbers, as `pit` takes them.
        n_bins: the number of bins B, from 1 to 2^24.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        PITCurve.  All numbers but the counts are NaN if the PIT of a kept row is NaN: because its
        cdf is not known, or, inside jit, because it is invalid.  Such a row is in no bin.  Time and
        memory are O(n) for the curves and O(R (B + 100)) for the bands, and of `IntervalCensored`
        targets O(n R (B + 100)) time.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            predictions of vectors.

    See also:
        `pit` for the values, `coverage_curve` for intervals, `calibjax.plot.pit` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = 2 * predictions.sample(jax.random.key(0))  # the model is over-confident
        >>> curve = cj.pit_curve(jax.random.key(1), predictions, targets, n_bins=5)
        >>> curve.density.round(1).tolist(), curve.density_high.round(1).tolist()
        ([1.6, 0.5, 0.6, 0.6, 1.7], [1.2, 1.2, 1.2, 1.2, 1.2])
        >>> days = jnp.arange(1000) // 20  # of one weather
        >>> options = {"n_bins": 5, "times": days, "horizon": 2}
        >>> curve = cj.pit_curve(jax.random.key(1), predictions, targets, **options)
        >>> bool(jnp.any(curve.density > curve.density_high))
        True

    Reference: Säilynoja, Bürkner and Vehtari, Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison, Statistics and
    Computing 2022, for simultaneous bands; Berk and Jones, Goodness-of-fit test statistics that
    dominate the Kolmogorov statistics, Zeitschrift für Wahrscheinlichkeitstheorie 1979, for T.
    """
    check_key(key)
    data = numbers_as_data(
        predictions, targets, intervals=True, without=("outcome_weights",), **rows
    )
    n_bins = UniformBinning(n_bins).n_bins
    data, resamples = resamples_of(data, confidence_level, n_resamples)
    of_band = pits_as_targets(key, data), resamples
    pits, found = _under_model(key, *of_band, n_bins, _LEAST_CELLS)
    return _pit_curve(pits, data.where, resamples, found, n_bins=n_bins)


@functools.partial(quick_jit, light=True)
def _two_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``jax.random.split(key)`` in fewer operations."""
    return folded(key, 0), folded(key, 1)


def _under_model(
    key: jax.Array, data: Data, resamples: Resamples, n_bins: int, least: int
) -> tuple[jax.Array, ResidualSums | jax.Array]:
    """U of the targets ``[n]``, or the ends of where it lies ``[2, n]``, and what a band compares.

    A band compares sums on at least `least` cells, or counts if targets are redrawn.
    """
    pit_key, band_key = _two_keys(key)
    # Measures run the same programs, and curves need little else of the data.
    if data.is_censored:
        pits = jnp.stack(drawn_pit_interval(pit_key, data))
    else:
        pits = pit_and_interval(pit_key, data)[0]
    if resamples.sampler is None:
        n_cells = n_bins * -(-least // n_bins)
        most = max(n_cells, _LEAST_CELLS)
        return pits, _redrawn_counts(band_key, data, resamples, n_cells, most=most)
    in_half = -(-least // (2 * n_bins))
    return pits, _sums_on_grid(band_key, data, pits, resamples, n_bins=n_bins, in_half=in_half)


# Programs of their own, because they take long to compile and both curves may need them.
@on_all_rows
def _redrawn_counts(
    key: jax.Array, data: Data, resamples: Resamples, n_cells: int, *, most: int
) -> jax.Array:
    n = jnp.full((), data.n, jnp.int32)
    if data.where is not None:
        n = jnp.sum(data.where, dtype=jnp.int32)
    dtype = widest_dtype(*jax.tree.leaves(data))
    return redrawn_uniform_counts(key, n, n_cells, most, resamples.number, dtype)


@on_all_rows
def _sums_on_grid(
    key: jax.Array, data: Data, pits: jax.Array, resamples: Resamples, *, n_bins: int, in_half: int
) -> ResidualSums:
    """Sums in B bins, in B - 1 central intervals, and in [0, z] for z on a grid."""
    # The interval of the level j / B is as many half bins to both sides of 1/2.
    middle, widths = n_bins * in_half, in_half * np.arange(1, n_bins, dtype=np.int32)
    points = np.arange(2 * middle + 1, dtype=np.int32)
    ends = points[:: 2 * in_half]
    first, last = (ends[:-1], middle - widths, 0 * points), (ends[1:], middle + widths, points)
    grid = UniformBinning(2 * middle).edges(widest_dtype(*jax.tree.leaves(data)))
    parts = Parts(np.concatenate(first), np.concatenate(last))
    return sums_in_parts(key, data, pits, grid, parts, resamples)


@on_all_rows
def _pit_curve(
    pits: jax.Array,
    where: jax.Array | None,
    resamples: Resamples,
    found: ResidualSums | jax.Array,
    *,
    n_bins: int,
) -> PITCurve:
    level, dtype = resamples.level, pits.dtype
    if not isinstance(found, ResidualSums):
        in_bin = -(-_LEAST_CELLS // n_bins)
        n_cells = n_bins * in_bin
        points = jnp.arange(n_cells + 1, dtype=jnp.int32)
        observed, valid = uniform_counts(pits, where, n_cells)
        # The observed counts, and those of data sets behind them.
        cells = jnp.concatenate([observed[None], found[:, :n_cells]])
        in_bins = jnp.sum(cells.reshape(-1, n_bins, in_bin), axis=-1, dtype=jnp.int32)
        below, n = cumulative(cells), jnp.sum(observed, dtype=jnp.int32)

        def of_cells(n_first: int) -> Bins:
            """Some bins, which all hold as many cells, and [0, z] for z on the grid."""
            sizes = jnp.concatenate([jnp.full(n_first, in_bin, jnp.int32), points])
            return distribution_of_cells(n, sizes, n_cells, dtype)

        every = jnp.concatenate([in_bins, below], axis=1)[1:]
        distances = jax.vmap(of_cells(n_bins).distances)(every)
        by_bin, on_grid = jnp.split(distances, [n_bins], axis=1)
        largest = jnp.ravel(by_bin), jnp.max(by_bin, axis=1), jnp.max(on_grid, axis=1)
        *of_one_bin, of_point = (critical_value(x, level) for x in largest)
        parts = of_cells(2)
        ends = parts.band(jnp.append(jnp.stack(of_one_bin), jnp.full(points.shape, of_point)))
        alone, together = ([jnp.full(n_bins, n_bins * x[k]) for x in ends] for k in (0, 1))
        grid = parts.mean[2:]
        count, share = in_bins[0], fractions(in_bins[0], n, dtype)
        difference = fractions(below[0], n, dtype) - grid
        low, high = (x[2:] - grid for x in ends)
    else:
        of_bins, of_grid = found[:n_bins], found[2 * n_bins - 1 :]
        grid, n = UniformBinning(of_grid.observed.size - 1).edges(dtype), of_bins.total
        valid = jnp.where(jnp.any(jnp.isnan(of_bins.observed)), jnp.nan, 1.0).astype(dtype)
        share = 1 / n_bins + of_bins.observed / n
        count = of_bins.n_rows * share
        alone, together = (
            [jnp.maximum(1 - x, 0.0), 1 + x]
            for x in (n_bins / n * of(level) for of in (of_bins.alone, of_bins.together))
        )
        difference = of_grid.observed / n
        high = of_grid.together(level) / n
        low = -high
    return PITCurve(
        edges=UniformBinning(n_bins).edges(dtype),
        count=count,
        density=n_bins * share * valid,
        pointwise_low=alone[0] * valid,
        pointwise_high=alone[1] * valid,
        density_low=together[0] * valid,
        density_high=together[1] * valid,
        grid=grid,
        difference=difference * valid,
        difference_low=low * valid,
        difference_high=high * valid,
        confidence_level=level.astype(dtype) * valid,
    )


@struct
class CoverageCurve:
    """Observed against nominal coverage of central intervals; see `coverage_curve`.

    Args:
        levels: the probabilities of the intervals, ``[l]``.
        coverage: the fraction of targets in them, ``[l]``.
        low, high: a band that holds for all levels at once, ``[l]``.
        width: the median width of the intervals in units of the targets, ``[l]``, of all rows that
            count, whatever they weigh; NaN for a family without quantiles.
        confidence_level: the probability with which the band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(4), jnp.ones(4))
        >>> targets = jnp.array([-0.7, -0.1, 0.2, 2.0])
        >>> curve = cj.coverage_curve(jax.random.key(0), predictions, targets, n_levels=3)
        >>> curve.levels.tolist(), curve.coverage.tolist(), curve.width.round(2).tolist()
        ([0.25, 0.5, 0.75], [0.5, 0.5, 0.75], [0.64, 1.35, 2.3])
    """

    levels: jax.Array
    coverage: jax.Array
    low: jax.Array
    high: jax.Array
    width: jax.Array
    confidence_level: jax.Array


def coverage_curve(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    n_levels: int = 19,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> CoverageCurve:
    """The observed coverage of central prediction intervals, with a band, and their width.

    .. math::
        c(l) = \\frac{1}{n} \\#\\{i : |2 u_i - 1| \\le l\\}, \\qquad
        w(l) = \\operatorname{median}_i \\,
        (F_i^{-1}(\\tfrac{1 + l}{2}) - F_i^{-1}(\\tfrac{1 - l}{2}))

    at even levels l between 0 and 1, where u_i is the probability integral transform of `pit`.  For
    counts, where an interval with exactly the probability l does not exist, u_i is random, and c is
    the coverage of an interval whose ends are in it with some probability.  Coverage below the
    level is the mark of a model that is over-confident.

    The band says where the curve lies **if the model is calibrated**: then |2 u - 1| are n
    independent uniform numbers, which are redrawn R = n_resamples times, as in `pit_curve`.  "The
    curve leaves the band somewhere" is an exact test of calibration at the level
    1 - confidence_level, up to ties and steps of 1 / (R + 1).  A model can have the right coverage
    at all levels and a wrong location, which `pit_curve` shows.

    With `weights`, `clusters` or `times` c is the weighted share, and the band is that of sums, as
    in `pit_curve`: in units of their deviation under the model, and with random signs and sizes if
    rows depend on each other.

    Args:
        key: a key of `jax.random`.
        predictions, targets: as in `Data`, or one `Data`: n >= 1 predictions of counts or of real
            numbers, as `pit` takes them.
        n_levels: the number of levels, 1 / (n_levels + 1), …, n_levels / (n_levels + 1).
        confidence_level: the probability of the band, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        CoverageCurve.  It is NaN if the PIT of a kept row is not known, or, inside jit, if a kept
        row is invalid.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            predictions of labels or of vectors.

    See also:
        `pit_curve`, `calibjax.plot.coverage` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = 2 * predictions.sample(jax.random.key(0))  # the model is over-confident
        >>> curve = cj.coverage_curve(jax.random.key(1), predictions, targets, n_levels=4)
        >>> curve.coverage.round(2).tolist(), curve.low.round(2).tolist()
        ([0.12, 0.24, 0.34, 0.48], [0.17, 0.36, 0.56, 0.77])

    Reference: Gneiting, Balabdaoui and Raftery, Probabilistic forecasts, calibration and sharpness,
    Journal of the Royal Statistical Society B 2007.
    """
    check_key(key)
    data = numbers_as_data(predictions, targets, **rows)
    if isinstance(data.predictions, Labels):
        raise TypeError(
            "predictions must be of counts or real numbers, got "
            f"{type(data.predictions).__name__}: labels have no central intervals."
        )
    n_levels = check_integer("n_levels", n_levels, 1, 2**24 - 1)
    data, resamples = resamples_of(data, confidence_level, n_resamples)
    of_band = pits_as_targets(key, data), resamples
    pits, found = _under_model(key, *of_band, n_levels + 1, 1)
    return _coverage_curve(pits, data, resamples, found, n_levels=n_levels)


def pit_and_coverage(
    keys: tuple[jax.Array, ...],
    data: Data,
    n_bins: int,
    confidence_level: float,
    n_resamples: int,
) -> tuple[PITCurve, CoverageCurve]:
    """`pit_curve` and `coverage_curve` of checked data, whose sums are computed once.

    The levels are the inner edges of the bins.
    """
    data, resamples = resamples_of(data, confidence_level, n_resamples)
    of_band = pits_as_targets(keys[0], data), resamples
    pits, found = _under_model(keys[0], *of_band, n_bins, _LEAST_CELLS)
    curve = _pit_curve(pits, data.where, resamples, found, n_bins=n_bins)
    if not isinstance(found, ResidualSums):
        pits, found = _under_model(keys[1], *of_band, n_bins, 1)
    return curve, _coverage_curve(pits, data, resamples, found, n_levels=n_bins - 1)


@on_all_rows
def _coverage_curve(
    pits: jax.Array,
    data: Data,
    resamples: Resamples,
    found: ResidualSums | jax.Array,
    *,
    n_levels: int,
) -> CoverageCurve:
    n_cells, j = n_levels + 1, jnp.arange(1, n_levels + 1, dtype=jnp.int32)
    dtype = pits.dtype
    if not isinstance(found, ResidualSums):
        observed, valid = uniform_counts(jnp.abs(2 * pits - 1), data.where, n_cells)
        n = jnp.sum(observed, dtype=jnp.int32)
        bins = distribution_of_cells(n, j, n_cells, dtype)
        levels, coverage = bins.mean, fractions(cumulative(observed)[1:-1], n, dtype)
        below = cumulative(found[:, :n_cells])[:, 1:-1]
        low, high = bins.band(bins.critical(below, resamples.level))
    else:
        of_levels = found[n_cells : n_cells + n_levels]
        valid = jnp.where(jnp.any(jnp.isnan(of_levels.observed)), jnp.nan, 1.0).astype(dtype)
        levels = j.astype(dtype) / n_cells
        coverage = levels + of_levels.observed / of_levels.total
        largest = of_levels.together(resamples.level) / of_levels.total
        low, high = jnp.maximum(levels - largest, 0.0), jnp.minimum(levels + largest, 1.0)
    return CoverageCurve(
        levels=levels,
        coverage=coverage * valid,
        low=low * valid,
        high=high * valid,
        width=_median_widths(data, n_levels).astype(dtype) * valid,
        confidence_level=resamples.level.astype(dtype) * valid,
    )


def _median_widths(data: Rows, n_levels: int) -> jax.Array:
    """The median width of the central intervals of kept rows at each level, ``[l]``."""
    data = clean(data)
    predictions, dtype = data.predictions, data.weights.dtype
    kept = data.weights != 0
    if type(predictions).quantile is Distribution.quantile:
        return jnp.full(n_levels, jnp.nan, dtype)

    def quantiles(level: jax.Array) -> jax.Array:
        found = predictions.quantile(level)
        if predictions.target_kind == "real":
            return found
        # The largest integer stands for a count that is not known.
        unknown = found == jnp.iinfo(found.dtype).max
        return jnp.where(unknown, jnp.inf, found.astype(dtype))

    n = jnp.sum(kept, dtype=jnp.int32)
    middle = jnp.maximum(jnp.stack([(n - 1) // 2, n // 2, n - 1]), 0)

    def median_width(level: jax.Array) -> jax.Array:
        low, high = jax.vmap(quantiles)(jnp.stack([1 - level, 1 + level]) / 2)
        # NaN is behind all numbers.
        ordered = jnp.sort(jnp.where(kept, high - low, jnp.nan))
        below, above, last = rows_of(ordered, middle)
        return jnp.where(jnp.isnan(last), jnp.nan, (below + above) / 2)

    return lax.map(median_width, jnp.arange(1, n_levels + 1, dtype=dtype) / (n_levels + 1))
