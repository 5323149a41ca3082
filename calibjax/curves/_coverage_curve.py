"""How often targets lie in the central intervals of predictions, and how wide these are."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._check import check_integer, check_key
from calibjax._distribution import Distribution
from calibjax._rows import Data, Dependence, clean, padded, with_dependence
from calibjax._struct import struct, widest_dtype
from calibjax.curves._cells import cell_counts, cumulative
from calibjax.curves._masses import is_plain, without_equal_weights
from calibjax.curves._pit_masses import masses_of_parts
from calibjax.curves._pit_parts import Parts
from calibjax.curves._rows import on_all_rows
from calibjax.estimators import UniformBinning
from calibjax.hypothesis_tests import Law, law_under_h0
from calibjax.resampling import check_resamples, fractions, law_of_cells, redrawn_uniform_counts
from calibjax.scores import check_numbers, pit_of_data


@struct
class CoverageCurve:
    """How often targets lie in central intervals, against how often they should.

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
    predictions: Distribution,
    targets: ArrayLike,
    *,
    n_levels: int = 19,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    times: ArrayLike | None = None,
    horizon: float | None = None,
) -> CoverageCurve:
    """The observed coverage of central prediction intervals, with a band, and their width.

    .. math::
        c(l) = \\frac{1}{n} \\#\\{i : |2 u_i - 1| \\le l\\}, \\qquad
        w(l) = \\operatorname{median}_i \\,
        (F_i^{-1}(\\tfrac{1 + l}{2}) - F_i^{-1}(\\tfrac{1 - l}{2}))

    at even levels l between 0 and 1, where u_i is the probability integral transform of `pit`.  For
    counts, where an interval with exactly the probability l does not exist, u_i is random, and c is
    the coverage of an interval whose ends are in it with some probability.  Coverage below the
    level is the mark of a model that is too sure.

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
        predictions: n >= 1 predictions of counts or of real numbers, as `pit` takes them.
        targets: the observed targets, ``[n]``.
        n_levels: the number of levels, 1 / (n_levels + 1), …, n_levels / (n_levels + 1).
        confidence_level: the probability of the band, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        where: boolean mask ``[n]``; masked rows may hold anything, and do not count.
        weights: how much each row counts, nonnegative numbers ``[n]`` that are known before the
            targets.
        clusters: integers ``[n]``: rows of one cluster may depend on each other in any way.
        times: numbers ``[n]``: rows of one time may depend on each other in any way.
        horizon: a number in units of the times: rows less than it apart may depend on each other;
            None for rows of one time only.

    Returns:
        CoverageCurve.  It is NaN if the PIT of a kept row is not known, or, inside jit, if a kept
        row is invalid.

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value;
            predictions of labels or of vectors.

    See also:
        `pit_curve`, `calibjax.plot.coverage` for a picture.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(jnp.zeros(1000), jnp.ones(1000))
        >>> targets = 2 * predictions.sample(jax.random.key(0))  # the model is too sure
        >>> curve = cj.coverage_curve(jax.random.key(1), predictions, targets, n_levels=4)
        >>> curve.coverage.round(2).tolist(), curve.low.round(2).tolist()
        ([0.12, 0.24, 0.34, 0.48], [0.17, 0.36, 0.56, 0.77])

    Reference: Gneiting, Balabdaoui and Raftery, Probabilistic forecasts, calibration and sharpness,
    Journal of the Royal Statistical Society B 2007.
    """
    check_key(key)
    data = check_numbers(predictions, targets, where, weights)
    data = with_dependence(data, Dependence(clusters, times, horizon))
    if data.predictions.has_labels:
        raise TypeError(
            "predictions must be of counts or real numbers, got "
            f"{type(predictions).__name__}: labels have no central intervals."
        )
    n_levels = check_integer("n_levels", n_levels, 1, 2**24 - 1)
    options = check_resamples(confidence_level, n_resamples)
    return coverage_curve_of_data(key, padded(data), n_levels=n_levels, **options)


def coverage_curve_of_data(
    key: jax.Array, data: Data, *, n_levels: int, confidence_level: jax.Array, n_resamples: int
) -> CoverageCurve:
    """`coverage_curve` of checked arguments."""
    data = without_equal_weights(data)
    options: dict[str, Any] = {
        "n_levels": n_levels,
        "confidence_level": confidence_level,
        "n_resamples": n_resamples,
    }
    if is_plain(data):
        return _curve_of_equal_rows(key, data, **options)
    return _curve_of_masses(key, data, law=law_under_h0(data), **options)


@on_all_rows
def _curve_of_masses(
    key: jax.Array,
    data: Data,
    *,
    n_levels: int,
    confidence_level: jax.Array,
    n_resamples: int,
    law: Law,
) -> CoverageCurve:
    """The curve of rows with weights, or that depend on each other."""
    # The interval of the level j / (n_levels + 1) is as many half cells to both sides of 1/2.
    half, j = n_levels + 1, jnp.arange(1, n_levels + 1, dtype=jnp.int32)
    dtype = widest_dtype(*jax.tree.leaves(data))
    grid = UniformBinning(2 * half).edges(dtype)
    masses = masses_of_parts(key, data, grid, Parts(half - j, half + j), n_resamples, law)
    levels = j.astype(dtype) / half
    valid = jnp.where(jnp.any(jnp.isnan(masses.observed)), jnp.nan, 1.0).astype(dtype)
    largest = masses.together(confidence_level) / masses.total
    return CoverageCurve(
        levels=levels,
        coverage=levels + masses.observed / masses.total,
        low=jnp.maximum(levels - largest, 0.0) * valid,
        high=jnp.minimum(levels + largest, 1.0) * valid,
        width=_median_widths(data, n_levels).astype(dtype) * valid,
        confidence_level=confidence_level.astype(dtype) * valid,
    )


@on_all_rows
def _curve_of_equal_rows(
    key: jax.Array, data: Data, *, n_levels: int, confidence_level: jax.Array, n_resamples: int
) -> CoverageCurve:
    """The curve of rows that are independent and weigh the same."""
    pit_key, band_key = jax.random.split(key)
    u, width = pit_of_data(pit_key, data), _median_widths(data, n_levels)
    n_cells = n_levels + 1
    counts, valid = cell_counts(jnp.abs(2 * u - 1), data.where, n_cells)
    n, dtype = jnp.sum(counts, dtype=jnp.int32), valid.dtype

    def in_intervals(counts: jax.Array) -> jax.Array:
        return cumulative(counts)[..., 1:-1]

    law = law_of_cells(n, jnp.arange(1, n_cells), n_cells, dtype)
    redrawn = redrawn_uniform_counts(band_key, n, n_cells, n_resamples, dtype)
    low, high = law.band(law.critical(in_intervals(redrawn), confidence_level))
    observed = in_intervals(counts)
    return CoverageCurve(
        levels=law.mean,
        coverage=fractions(observed, n, dtype) * valid,
        low=low * valid,
        high=high * valid,
        width=width.astype(dtype) * valid,
        confidence_level=confidence_level.astype(dtype) * valid,
    )


def _median_widths(data: Data, n_levels: int) -> jax.Array:
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

    def median_width(level: jax.Array) -> jax.Array:
        widths = quantiles((1 + level) / 2) - quantiles((1 - level) / 2)
        unknown = jnp.any(jnp.isnan(widths) & kept)
        return jnp.where(unknown, jnp.nan, jnp.nanmedian(jnp.where(kept, widths, jnp.nan)))

    return lax.map(median_width, jnp.arange(1, n_levels + 1, dtype=dtype) / (n_levels + 1))
