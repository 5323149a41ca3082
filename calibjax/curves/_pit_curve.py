"""Curves of the probability integral transform, which is uniform for a calibrated model."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._between import Between, Targets
from calibjax._check import check_key
from calibjax._distribution import Distribution
from calibjax._rows import Data, Dependence, padded, with_dependence
from calibjax.curves._cells import cell_counts, cumulative
from calibjax.curves._masses import is_plain, without_equal_weights
from calibjax.curves._pit_ranges import pit_curve_of_ranges
from calibjax.curves._pit_result import PITCurve, cells_per_bin
from calibjax.curves._rows import on_all_rows
from calibjax.estimators import UniformBinning
from calibjax.hypothesis_tests import law_under_h0
from calibjax.resampling import (
    check_resamples,
    critical_value,
    fractions,
    law_of_cells,
    redrawn_uniform_counts,
)
from calibjax.scores import check_numbers, pit_of_data


def pit_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: Targets,
    *,
    n_bins: int = 20,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
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

    **Targets that are `Between` two numbers** are spread evenly over the interval from F(low) to
    F(high), where u is uniform given what is known: the mean histogram of a calibrated model is
    still flat, whatever hides its targets, if that is independent of the target given the
    prediction.  The distance is then |K - n p| in units of its deviation under the model.  If
    `censored_at` is known of all rows, draws of u are hidden in the same way, and the test of the
    simultaneous band is exact.  Else the observed parts of the rows, less their means, are given
    random signs and sizes, as in `calibration_test`: right for large n, and cautious if events are
    few.  Rows are not moved to where others had an event, as in the estimate of Turnbull.

    **Rows with weights** count as much in all sums, and those that depend on each other, in
    clusters or over times, have random signs and sizes that they share, as in `calibration_test`.
    With both the distance is that of `Between` targets.  With weights alone the u are redrawn, and
    the test is exact.

    Args:
        key: a key of `jax.random`.
        predictions: n >= 1 predictions of labels, which are ordered as numbers, of counts or of
            real numbers, as `pit` takes them.
        targets: the observed targets, ``[n]``, or `Between` where they are censored or binned.
        n_bins: the number of bins B, from 1 to 2^24.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        where: boolean mask ``[n]``; masked rows may hold anything, and do not count.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other;
            None for rows of one time only.

    Returns:
        PITCurve.  All numbers but the counts are NaN if the PIT of a kept row is NaN: because its
        cdf is not known, or, inside jit, because it is invalid.  Such a row is in no bin.  Time and
        memory are O(n) for the curves and O(R (B + 100)) for the bands, and of `Between` targets
        O(n R (B + 100)) time.

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
    data = check_numbers(predictions, targets, where, weights, intervals=True)
    data = with_dependence(data, Dependence(clusters, times, horizon))
    n_bins = UniformBinning(n_bins).n_bins
    options = check_resamples(confidence_level, n_resamples)
    return pit_curve_of_data(key, padded(data), n_bins=n_bins, **options)


def pit_curve_of_data(
    key: jax.Array, data: Data, *, n_bins: int, confidence_level: jax.Array, n_resamples: int
) -> PITCurve:
    """`pit_curve` of checked arguments."""
    data = without_equal_weights(data)
    options: dict[str, Any] = {
        "n_bins": n_bins,
        "confidence_level": confidence_level,
        "n_resamples": n_resamples,
    }
    if isinstance(data.targets, Between) or not is_plain(data):
        law = law_under_h0(data)
        return pit_curve_of_ranges(key, data, law=law, **options)
    return _curve_of_points(key, data, **options)


@on_all_rows
def _curve_of_points(
    key: jax.Array, data: Data, *, n_bins: int, confidence_level: jax.Array, n_resamples: int
) -> PITCurve:
    """The curve of targets that are known."""
    pit_key, band_key = jax.random.split(key)
    in_bin = cells_per_bin(n_bins)
    n_cells = n_bins * in_bin
    counts, valid = cell_counts(pit_of_data(pit_key, data), data.where, n_cells)
    n, dtype = jnp.sum(counts, dtype=jnp.int32), valid.dtype
    redrawn = redrawn_uniform_counts(band_key, n, n_cells, n_resamples, dtype)

    def in_bins(counts: jax.Array) -> jax.Array:
        in_bins = counts.reshape(*counts.shape[:-1], n_bins, in_bin)
        return jnp.sum(in_bins, axis=-1, dtype=jnp.int32)

    bins = law_of_cells(n, jnp.full(n_bins, in_bin), n_cells, dtype)
    distances = jax.vmap(bins.distances)(in_bins(redrawn))
    alone = bins.band(critical_value(jnp.ravel(distances), confidence_level))
    together = bins.band(bins.critical(in_bins(redrawn), confidence_level))

    at_grid = law_of_cells(n, jnp.arange(n_cells + 1), n_cells, dtype)
    low, high = at_grid.band(at_grid.critical(cumulative(redrawn), confidence_level))
    grid = at_grid.mean
    return PITCurve(
        edges=UniformBinning(n_bins).edges(dtype),
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
