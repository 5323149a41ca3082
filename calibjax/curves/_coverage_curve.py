"""How often targets lie in the central intervals of predictions, and how wide these are."""

from typing import Unpack

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import on_all_rows
from calibjax._base.struct import struct, widest_dtype
from calibjax._data import Data, Distribution, RowOptions, clean, padded
from calibjax.curves._residual_sums import Parts, sums_in_parts, without_equal_weights
from calibjax.curves._uniform_counts import cumulative, uniform_counts
from calibjax.estimators import UniformBinning
from calibjax.resampling import NullSampler, check_resamples, fractions, law_of_cells
from calibjax.scores import numbers_as_data, pit


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
    data = numbers_as_data(predictions, targets, **rows)
    if data.predictions.has_labels:
        raise TypeError(
            "predictions must be of counts or real numbers, got "
            f"{type(data.predictions).__name__}: labels have no central intervals."
        )
    n_levels = check_integer("n_levels", n_levels, 1, 2**24 - 1)
    level, n_resamples = check_resamples(confidence_level, n_resamples)
    data = without_equal_weights(padded(data))
    sampler = None if data.is_plain else NullSampler.of(data)
    return _coverage_curve(
        key, data, level, n_levels=n_levels, n_resamples=n_resamples, sampler=sampler
    )


@on_all_rows
def _coverage_curve(
    key: jax.Array,
    data: Data,
    confidence_level: jax.Array,
    *,
    n_levels: int,
    n_resamples: int,
    sampler: NullSampler | None,
) -> CoverageCurve:
    """The curve; `sampler` is None for rows that are independent and weigh the same."""
    n_cells, j = n_levels + 1, jnp.arange(1, n_levels + 1, dtype=jnp.int32)
    dtype = jnp.dtype(widest_dtype(*jax.tree.leaves(data)))
    if sampler is None:
        pit_key, band_key = jax.random.split(key)
        distances = jnp.abs(2 * pit(pit_key, data) - 1)
        found = uniform_counts(band_key, distances, data.where, n_cells, n_resamples)
        found, valid = found.each(lambda counts: cumulative(counts)[..., 1:-1]), found.valid
        bins = law_of_cells(found.n, j, n_cells, dtype)
        levels, coverage = bins.mean, fractions(found.observed, found.n, dtype)
        low, high = bins.band(bins.critical(found.redrawn, confidence_level))
    else:
        # The interval of the level j / c is as many half cells to both sides of 1/2.
        grid, parts = UniformBinning(2 * n_cells).edges(dtype), Parts(n_cells - j, n_cells + j)
        sums = sums_in_parts(key, data, grid, parts, n_resamples, sampler)
        valid = jnp.where(jnp.any(jnp.isnan(sums.observed)), jnp.nan, 1.0).astype(dtype)
        levels = j.astype(dtype) / n_cells
        coverage = levels + sums.observed / sums.total
        largest = sums.together(confidence_level) / sums.total
        low, high = jnp.maximum(levels - largest, 0.0), jnp.minimum(levels + largest, 1.0)
    return CoverageCurve(
        levels=levels,
        coverage=coverage * valid,
        low=low * valid,
        high=high * valid,
        width=_median_widths(data, n_levels).astype(dtype) * valid,
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
