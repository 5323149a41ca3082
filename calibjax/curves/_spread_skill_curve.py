r"""The spread of ensembles against the error of their mean.

Let S = k + 1 values be k members and the target, m their mean and v the mean of (x - m)^2 over
them, and z = (y - m) / sqrt(v) of the target.  The mean of the members is m - (y - m) / k, so that
its squared error is

    e^2 = V z^2,    V = ((k + 1) / k)^2 v,

and the members, with the unbiased variance s^2, have

    (k + 1) / k s^2 = V (k - z^2) / (k - 1) = e^2 - V k / (k - 1) (z^2 - 1).

If the target is exchangeable with the members, it is any of the S values, of which z^2 has the mean
1.  So both have the mean V, given the values: rows may be put into bins by V, as by the variance of
the members they may not, and what parts the two is a sum of z^2 - 1 with weights V k / (k - 1).
"""

from typing import Unpack

import jax
import jax.numpy as jnp

from calibjax._base.check import check_integer, check_key
from calibjax._base.sharding import on_all_rows
from calibjax._base.struct import rows_of, struct, with_fields
from calibjax._data.capabilities import Exchangeable, is_exchangeable
from calibjax._data.data import Data, RowOptions, Rows, clean
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import dot
from calibjax.curves._error_maps import quantile_bins
from calibjax.curves._residual_sums import Resamples, resamples_of, sums_in_bins
from calibjax.nulls.sampler import pooled
from calibjax.scores import numbers_as_data


@struct
class SpreadSkillCurve:
    """The spread of ensembles, and the error of their mean; see `spread_skill_curve`.

    Args:
        edges: the ends of the bins of the error that is to be expected, ``[b + 1]``.
        count: the number of rows in each bin, ``[b]``.
        spread: the root of the mean variance of members, ``[b]``; NaN where the bin is empty.
        error: the root of the mean squared error of the ensemble mean, ``[b]``.
        error_low, error_high: a band of errors that holds for all bins at once, ``[b]``.
        confidence_level: the probability with which the band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> members = cj.Empirical(jnp.array([[0.0, 2.0]]))
        >>> curve = cj.spread_skill_curve(jax.random.key(0), members, jnp.array([4.0]), n_bins=1)
        >>> (curve.spread**2).round(3).tolist(), curve.error.tolist()  # 3/2 of the variance 2
        ([3.0], [3.0])
    """

    edges: jax.Array
    count: jax.Array
    spread: jax.Array
    error: jax.Array
    error_low: jax.Array
    error_high: jax.Array
    confidence_level: jax.Array


def spread_skill_curve(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: jax.Array | None = None,
    *,
    n_bins: int = 10,
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> SpreadSkillCurve:
    """The spread of ensembles against the error of their mean, with a band.

    .. math::
        \\text{spread}_b^2 = \\frac{1}{n_b} \\sum_{i \\in b} \\frac{k_i + 1}{k_i} s_i^2, \\qquad
        \\text{error}_b^2 = \\frac{1}{n_b} \\sum_{i \\in b} (y_i - \\bar x_i)^2

    of rows with k_i members, their mean and their unbiased variance s_i^2.  Were the target one
    more member, both would have the same mean, for every k_i >= 2: where the error is larger, the
    ensemble is too narrow or shifted.

    Bins hold equally many rows of about one variance of the *set* of members and target.  This is
    what keeps both means equal: among rows of one variance of the members alone, the error of a
    calibrated ensemble is larger than a small spread, and smaller than a large one.

    The band says where the error lies **if the ensemble is calibrated**.  Any value of a set may be
    the target, and is drawn R = n_resamples times; the difference error^2 - spread^2 of a bin is
    taken in units of its deviation under the model.  "The error leaves the band somewhere" is an
    exact test at the level 1 - confidence_level, up to ties and steps of 1 / (R + 1), if rows are
    independent.  With `clusters` or `times`, rows of a cluster share random signs and sizes, as in
    `calibration_test`.

    Args:
        key: a key of `jax.random`.
        predictions, targets: as in `Data`, or one `Data`: n >= 1 `Empirical` predictions of
            numbers, without weights.  A row with one member has no spread, and is in no bin.
        n_bins: the number of bins b.
        confidence_level: the probability of the band, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`; means are weighted.

    Returns:
        SpreadSkillCurve, in units of the targets.  It is NaN if no row has two members, or, inside
        jit, if a kept row is invalid.  O(n (R + S)) time; memory is bounded but for O(n S + b R).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `pit_curve` for the rank histogram, `calibjax.plot.spread_skill` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> scale = jnp.linspace(1.0, 3.0, 1000)
        >>> truth = cj.Normal(jnp.zeros(1000), scale)
        >>> members = truth.sample(jax.random.key(0), (10,)).T
        >>> targets = 1.5 * truth.sample(jax.random.key(1))  # the ensemble is too narrow
        >>> found = cj.spread_skill_curve(
        ...     jax.random.key(2), cj.Empirical(members), targets, n_bins=3
        ... )
        >>> is_outside = found.error > found.error_high
        >>> [f"{x:.1f}" for x in found.error / found.spread], is_outside.tolist()
        (['1.3', '1.3', '1.5'], [True, True, True])

    Reference: Fortin, Abaza, Anctil and Turcotte, Why should ensemble spread match the RMSE of the
    ensemble mean?, Journal of Hydrometeorology 2014, for (k + 1) / k; Leutbecher and Palmer,
    Ensemble forecasting, Journal of Computational Physics 2008.
    """
    check_key(key)
    data = numbers_as_data(predictions, targets, **rows)
    if not is_exchangeable(data.predictions):
        raise TypeError(
            "predictions must be Empirical members without weights, got "
            f"{type(data.predictions).__name__}; residual_map compares other predicted spreads."
        )
    n_bins = check_integer("n_bins", n_bins, 1)
    of_band = resamples_of(data, confidence_level, n_resamples)
    return _spread_skill_curve(key, *of_band, n_bins=n_bins)


@on_all_rows
def _spread_skill_curve(
    key: jax.Array, data: Rows, resamples: Resamples, *, n_bins: int
) -> SpreadSkillCurve:
    data = pooled(clean(data))
    pool, dtype = data.predictions, data.weights.dtype
    assert isinstance(pool, Exchangeable)  # the caller has looked
    z, of_pool, probabilities = (x.astype(dtype) for x in pool.standard_scores(data.targets))
    size = 1 / jnp.max(probabilities, axis=1)
    weights = jnp.where(size > 2.5, data.weights, 0.0)
    expected = pool.standard_deviation().astype(dtype) * size / (size - 1)
    kept = weights != 0
    edges, bins = quantile_bins(expected, kept, n_bins)
    is_in = (bins[:, None] == jnp.arange(n_bins, dtype=jnp.int32)[None]) & kept[:, None]
    count = jnp.sum(is_in, axis=0, dtype=jnp.int32)
    # Squares in units of the bin: its upper end is the largest of its rows.
    unit = edges[1:]
    share = jnp.square(expected / rows_of(jnp.where(unit > 0, unit, 1.0), bins))
    squares = share * jnp.square(z), share * (size - 1 - jnp.square(z)) / (size - 2)
    columns = weights[None] * jnp.stack([jnp.ones_like(z), *squares])
    total, error, spread = dot(jnp.where(kept[None], columns, 0.0), is_in.astype(dtype))
    scores = data.replace(
        predictions=with_fields(pool, samples=of_pool),
        targets=z,
        weights=weights * share * (size - 1) / (size - 2),
    )
    variance = jnp.sum(probabilities * jnp.square(jnp.square(of_pool)), axis=1) - 1

    def residuals(_: Distribution, targets: jax.Array) -> jax.Array:
        return jnp.square(targets) - 1

    bins = jnp.where(kept, bins, n_bins)
    of_bins = sums_in_bins(key, scores, bins, n_bins, resamples, residuals, variance)
    largest = of_bins.together(resamples.level)
    is_known = jnp.any(count > 0) & ~jnp.any(jnp.isnan(data.weights))
    valid = jnp.where(is_known, 1.0, jnp.nan).astype(dtype)

    sums = jnp.stack([spread, error, spread - largest, spread + largest])
    of_filled = jnp.where(count > 0, valid / total, jnp.nan)
    spread, error, low, high = unit[None] * jnp.sqrt(jnp.maximum(sums, 0.0) * of_filled[None])
    return SpreadSkillCurve(
        edges=edges,
        count=count,
        spread=spread,
        error=error,
        error_low=low,
        error_high=high,
        confidence_level=resamples.level.astype(dtype) * valid,
    )
