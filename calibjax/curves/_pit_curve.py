"""Curves of the probability integral transform, which is uniform for a calibrated model."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._check import check_key
from calibjax._distribution import Distribution
from calibjax._rows import Data, padded
from calibjax._struct import struct
from calibjax.curves._cells import cell_counts, cumulative
from calibjax.curves._rows import on_all_rows
from calibjax.estimators import UniformBinning
from calibjax.resampling import (
    check_resamples,
    critical_value,
    fractions,
    law_of_cells,
    redrawn_uniform_counts,
)
from calibjax.scores import check_numbers, pit_of_data

# The least number of cells of the grid on which the distribution function is looked at.
_LEAST_CELLS = 100


@struct
class PITCurve:
    """The histogram of the PIT and its distribution function; see `pit_curve`.

    Args:
        edges: the ends of the bins of the histogram, ``[b + 1]``.
        count: the number of rows in each bin, ``[b]``.
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
    predictions: Distribution,
    targets: ArrayLike,
    *,
    n_bins: int = 20,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
) -> PITCurve:
    """The histogram of the PIT, and its distribution function minus the diagonal, with bands.

    .. math::
        d_b = \\frac{B}{n} \\#\\{i : u_i \\in (\\tfrac{b - 1}{B}, \\tfrac{b}{B}]\\}, \\qquad
        D(z) = \\frac{1}{n} \\#\\{i : u_i \\le z\\} - z

    of the probability integral transform u_i of `pit`, in B = n_bins bins, and for z on an even
    grid of at least 100 cells.  The histogram of a calibrated model is flat; it is a U for one that
    is too sure and a hump for one that is not sure enough.  Both may hide errors that cancel
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

    Args:
        key: a key of `jax.random`.
        predictions: n >= 1 predictions of labels, which are ordered as numbers, of counts or of
            real numbers, as `pit` takes them.
        targets: the observed targets, ``[n]``.
        n_bins: the number of bins B, from 1 to 2^24.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        where: boolean mask ``[n]``; masked rows may hold anything, and do not count.

    Returns:
        PITCurve.  All numbers but the counts are NaN if the PIT of a kept row is NaN: because its
        cdf is not known, or, inside jit, because it is invalid.  Such a row is in no bin.  Time and
        memory are O(n) for the curves and O(R (B + 100)) for the bands.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            predictions of vectors.

    See also:
        `pit` for the values, `coverage_curve` for intervals, `calibjax.plot.pit` for a picture.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = 2 * predictions.sample(jax.random.key(0))  # the model is too sure
        >>> curve = cj.pit_curve(jax.random.key(1), predictions, targets, n_bins=5)
        >>> curve.density.round(1).tolist(), curve.density_high.round(1).tolist()
        ([1.6, 0.5, 0.6, 0.6, 1.7], [1.2, 1.2, 1.2, 1.2, 1.2])

    Reference: Säilynoja, Bürkner and Vehtari, Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison, Statistics and
    Computing 2022, for simultaneous bands; Berk and Jones, Goodness-of-fit test statistics that
    dominate the Kolmogorov statistics, Zeitschrift für Wahrscheinlichkeitstheorie 1979, for T.
    """
    check_key(key)
    data = check_numbers(predictions, targets, where)
    n_bins = UniformBinning(n_bins).n_bins
    options = check_resamples(confidence_level, n_resamples)
    return pit_curve_of_data(key, padded(data), n_bins=n_bins, **options)


@on_all_rows
def pit_curve_of_data(
    key: jax.Array, data: Data, *, n_bins: int, confidence_level: Any, n_resamples: int
) -> PITCurve:
    """`pit_curve` of checked arguments."""
    pit_key, band_key = jax.random.split(key)
    cells_per_bin = -(-_LEAST_CELLS // n_bins)
    n_cells = n_bins * cells_per_bin
    counts, valid = cell_counts(pit_of_data(pit_key, data), data.where, n_cells)
    n, dtype = jnp.sum(counts, dtype=jnp.int32), valid.dtype
    redrawn = redrawn_uniform_counts(band_key, n, n_cells, n_resamples, dtype)

    def in_bins(counts: jax.Array) -> jax.Array:
        in_bins = counts.reshape(*counts.shape[:-1], n_bins, cells_per_bin)
        return jnp.sum(in_bins, axis=-1, dtype=jnp.int32)

    bins = law_of_cells(n, jnp.full(n_bins, cells_per_bin), n_cells, dtype)
    distances = jax.vmap(bins.distances)(in_bins(redrawn))
    alone = bins.band(critical_value(jnp.ravel(distances), confidence_level))
    together = bins.band(bins.critical(in_bins(redrawn), confidence_level))

    at_grid = law_of_cells(n, jnp.arange(n_cells + 1), n_cells, dtype)
    low, high = at_grid.band(at_grid.critical(cumulative(redrawn), confidence_level))
    grid = at_grid.mean
    return PITCurve(
        edges=jnp.linspace(0.0, 1.0, n_bins + 1, dtype=dtype),
        count=in_bins(counts),
        density=n_bins * fractions(in_bins(counts), n, dtype) * valid,
        pointwise_low=n_bins * alone[0] * valid,
        pointwise_high=n_bins * alone[1] * valid,
        density_low=n_bins * together[0] * valid,
        density_high=n_bins * together[1] * valid,
        grid=grid,
        difference=(fractions(cumulative(counts), n, dtype) - grid) * valid,
        difference_low=(low - grid) * valid,
        difference_high=(high - grid) * valid,
        confidence_level=confidence_level.astype(dtype) * valid,
    )
