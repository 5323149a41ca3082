"""The reliability curve of binary predictions in bins."""

from typing import Unpack

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._base.check import check_choice, check_key
from calibjax._base.sharding import on_all_rows
from calibjax._base.struct import struct
from calibjax._data.data import Data, RowOptions, clean
from calibjax._data.distribution import Distribution, as_binary
from calibjax.curves._residual_sums import Resamples, resamples_of, sums_in_bins
from calibjax.estimators.binning import STRATEGIES, UniformBinning, bin_means, intervals_of
from calibjax.estimators.labels import binary_as_data
from calibjax.nulls.bands import Bins, fractions
from calibjax.nulls.event_sums import redrawn_label_counts
from calibjax.nulls.ranks import critical_value


@struct
class ReliabilityCurve:
    """Observed frequencies of events against predicted ones; see `reliability_curve`.

    Args:
        edges: the ends of the bins, ``[b + 1]``.
        forecast: the mean predicted probability in each bin, ``[b]``, NaN where it is empty.
        frequency: how often the event happened, ``[b]``, NaN where the bin is empty.
        count: the number of rows in each bin, ``[b]``, whatever they weigh.
        pointwise_low, pointwise_high: a band that holds for each bin alone, ``[b]``.
        simultaneous_low, simultaneous_high: a band that holds for all bins at once, ``[b]``.
        confidence_level: the probability with which each band holds.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Bernoulli(jnp.array([0.1, 0.2, 0.7, 0.7]))
        >>> targets = jnp.array([0, 1, 1, 1])
        >>> curve = cj.reliability_curve(jax.random.key(0), predictions, targets, n_bins=2)
        >>> curve.forecast.round(2).tolist(), curve.frequency.tolist(), curve.count.tolist()
        ([0.15, 0.7], [0.5, 1.0], [2, 2])
    """

    edges: jax.Array
    forecast: jax.Array
    frequency: jax.Array
    count: jax.Array
    pointwise_low: jax.Array
    pointwise_high: jax.Array
    simultaneous_low: jax.Array
    simultaneous_high: jax.Array
    confidence_level: jax.Array


def reliability_curve(
    key: jax.Array,
    predictions: Distribution | Data,
    targets: ArrayLike | None = None,
    *,
    n_bins: int = 15,
    strategy: str = "uniform",
    confidence_level: float = 0.95,
    n_resamples: int = 999,
    **rows: Unpack[RowOptions],
) -> ReliabilityCurve:
    """The frequency of events in bins of the predicted probability, with consistency bands.

    .. math::
        \\bar p_b = \\frac{1}{n_b} \\sum_{i \\in b} p_i, \\qquad
        \\bar y_b = \\frac{1}{n_b} \\sum_{i \\in b} y_i

    in n_bins intervals of [0, 1], which are closed on the right: equal ones, or with the strategy
    "quantile" intervals that hold equally many predictions, as rare events want.  The bands say
    where frequencies lie **if the model is calibrated**: all targets are redrawn from the
    predictions R = n_resamples times, and the distance of each bin,

    .. math::
        T_b = 2 n_b \\, \\mathrm{KL}(\\bar y_b \\| \\bar p_b) \\,
        \\frac{n_b \\bar p_b (1 - \\bar p_b)}{\\sum_{i \\in b} p_i (1 - p_i)},

    is compared with the distances of the redrawn targets: of the same bin for the pointwise band,
    and the largest of all bins for the simultaneous one.  So "the curve leaves the simultaneous
    band somewhere" is an exact test of calibration at the level 1 - confidence_level, whatever n
    and the predictions are, if rows are independent given the predictions: the probability under a
    calibrated model is at most that, and equal up to ties and steps of 1 / (R + 1).  Some pointwise
    bands are left by most calibrated models.

    The ends of the bands are frequencies k / n_b that can happen, or the mean prediction.  Only a
    frequency strictly outside leaves the band.  A bin without rows is NaN, and a bin of impossible
    or certain events has a band of no width, which one wrong target leaves.  Bands do not depend on
    the targets.

    **With weights, or dependent rows**, means are weighted, and the distance is
    |sum_i w_i (y_i - p_i)| of a bin in units of its deviation under the model.  It is compared with
    that of redrawn targets with the same weights, which is exact; or, with `clusters` or `times`,
    of the observed residuals with random signs and sizes that the rows of a cluster share, as in
    `calibration_test`.

    Args:
        key: a key of `jax.random`.
        predictions, targets: as in `Data`, or one `Data`: n >= 2 Bernoulli predictions, such as
            `top_label` or `one_vs_rest` make.
        n_bins: the number of bins b, from 1 to 2^24.
        strategy: "uniform" or "quantile", as in ``sklearn.calibration.calibration_curve``.
        confidence_level: the probability of the bands, a number in (0, R / (R + 1)].
        n_resamples: R, the number of redrawn data sets; each depends only on (key, r).
        rows: `where`, `weights`, `clusters`, `times` and `horizon` of `Data`.

    Returns:
        ReliabilityCurve(edges, forecast, frequency, count, bands).  Inside jit all numbers but the
        counts are NaN if a kept row is invalid.  O(n R) time; memory is bounded but for O(n + b R).

    Raises:
        TypeError, ValueError: an argument of the wrong type, shape or, where it is concrete, value.

    See also:
        `corp_curve` without bins, `ece` for one number, `calibjax.plot.reliability` for a plot.

    Example:
        >>> import jax, jax.numpy as jnp, calibjax as cj
        >>> confidences = cj.Bernoulli(jnp.full(400, 0.9))
        >>> hits = jnp.arange(400) < 300
        >>> curve = cj.reliability_curve(jax.random.key(0), confidences, hits, n_bins=5)
        >>> curve.frequency[4].tolist(), curve.simultaneous_low[4].round(2).tolist()
        (0.75, 0.87)

        Twenty questions on each of 20 texts, of which 15 are easy:

        >>> text = jnp.arange(400) // 20
        >>> options = {"n_bins": 5, "clusters": text}
        >>> curve = cj.reliability_curve(jax.random.key(0), confidences, text < 15, **options)
        >>> curve.frequency[4].tolist(), bool(curve.simultaneous_low[4] < 0.75)
        (0.75, True)

    Reference: Bröcker and Smith, Increasing the reliability of reliability diagrams, Weather and
    Forecasting 2007, for consistency bands; Dwass, Modified randomization tests for nonparametric
    hypotheses, Annals of Mathematical Statistics 1957, for ranks among redrawn data.
    """
    check_key(key)
    data = binary_as_data(predictions, targets, **rows)
    n_bins = UniformBinning(n_bins).n_bins
    check_choice("strategy", strategy, STRATEGIES)
    of_band = resamples_of(data, confidence_level, n_resamples)
    return _reliability_curve(key, *of_band, strategy=strategy, n_bins=n_bins)


@on_all_rows
def _reliability_curve(
    key: jax.Array, data: Data, resamples: Resamples, *, strategy: str, n_bins: int
) -> ReliabilityCurve:
    rows, level = clean(data), resamples.level
    probs, weights = as_binary(rows.predictions).binary_probability(), rows.weights
    dtype = weights.dtype
    bins, edges = intervals_of(strategy, n_bins, probs, weights != 0)

    def counts(x: jax.Array) -> jax.Array:
        return jnp.zeros(n_bins, jnp.int32).at[bins].add(x.astype(jnp.int32), mode="drop")

    count = counts(jnp.ones(rows.n))
    if resamples.sampler is None:
        moments = jnp.stack([probs, 1 - probs, probs * (1 - probs)], axis=1)
        mean, complement, variance = bin_means(moments, bins, count).T
        events = Bins(mean, complement, variance * count.astype(dtype), count)
        frequency = fractions(counts(rows.targets), count, dtype)
        # A row that draws the other label counts in no cell.
        cells = jnp.stack([jnp.full_like(bins, n_bins), bins], axis=1)
        redrawn = redrawn_label_counts(
            key, rows.predictions, weights, cells, n_bins, resamples.number
        )
        distances = jax.vmap(events.distances)(redrawn)
        critical = [critical_value(x, level) for x in (distances.T, jnp.max(distances, axis=1))]
        low, high = jax.vmap(events.band)(jnp.stack(jnp.broadcast_arrays(*critical)))
        alone, together = ((low[k], high[k]) for k in (0, 1))
    else:

        def residuals(predictions: Distribution, targets: jax.Array) -> jax.Array:
            probs = as_binary(predictions).binary_probability()
            return targets.astype(probs.dtype) - probs[:, None]

        rows = rows.replace(targets=rows.targets.astype(jnp.int32))
        sums = sums_in_bins(key, rows, bins, n_bins, resamples, residuals, probs * (1 - probs))
        values = jnp.stack([probs, rows.targets.astype(dtype)], axis=1)
        mean, frequency = bin_means(values, bins, sums.total, weights).T
        unit = 1 / jnp.where(sums.total > 0, sums.total, 1.0)
        alone, together = (
            (jnp.maximum(mean - unit * x, 0.0), jnp.minimum(mean + unit * x, 1.0))
            for x in (sums.alone(level), sums.together(level))
        )
    valid = jnp.where(jnp.any(jnp.isnan(weights)), jnp.nan, 1.0)
    of_filled = jnp.where(count > 0, valid, jnp.nan).astype(dtype)
    return ReliabilityCurve(
        edges=edges.astype(dtype),
        forecast=mean * of_filled,
        frequency=frequency * of_filled,
        count=count,
        pointwise_low=alone[0] * of_filled,
        pointwise_high=alone[1] * of_filled,
        simultaneous_low=together[0] * of_filled,
        simultaneous_high=together[1] * of_filled,
        confidence_level=level.astype(dtype) * valid,
    )
