r"""The sums of all segments, and the largest score of data sets under H0.

With the residuals r_i of a statistic, weights w_i, and moments of the model,

    S = sum_i w_i r_i,    V = sum_i w_i^2 E r_i^2,    M = sum_i w_i^3 E r_i^3

over the rows of a segment.  If the model is calibrated, Z = S / sqrt(V) has the skewness
g = M / V^{3/2}, and a score that is nearly normal (`normal_scores`).  Large g are cut off: sums of
few rare events are no gamma variables, and a strong transformation would hide large sums.

Data sets under H0 are those of a `NullSampler`.  In clusters and over times they have the sums

    sum_i w_i xi_i r_i + lambda sum_i w_i s_i,    lambda^2 = max(0, 1 - sum w_i^2 r_i^2 / V)

with multipliers xi, residuals r that are cut off where they are so large that they would make the
band of all segments too wide, and residuals s of redrawn targets, and of times, the mean of the
segment's residuals is taken out; these sums are symmetric, and g is 0.

From each sum of spreads, observed or not, then goes what the segment's own location adds to it.

All segments and statistics share draws and multipliers, so that the largest absolute score of a
data set knows how they depend on each other.
A chunk of rows is one product of a matrix of ones and zeros ``[S, n]`` with the residuals of many
data sets ``[n, D J]``: O(n S R J) time, and memory that depends on neither n nor R.

Reference: Wilson and Hilferty, The distribution of chi-square, PNAS 1931.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._data.data import Rows, clean
from calibjax._data.interval_censored import Between
from calibjax.nulls.draws import DRAWS_PER_BATCH, row_numbers
from calibjax.nulls.ranks import counted_pvalue, normal_scores, rounding_of
from calibjax.nulls.sampler import (
    MULTIPLIERS,
    NullSampler,
    SampledRows,
    in_passes,
    sum_over_rows,
    variance_deficit,
)
from calibjax.residuals.readable import bounded, statistics_of
from calibjax.segments._segments import SegmentTable

# The batches of draws whose moments are taken for the model's, where these are not known.
_MOMENT_BATCHES = 2**31 - 2 - np.arange(4, dtype=np.int32)
# How many numbers of a row are in memory for its moments, about, and how many sums at a time.
_PER_ROW, _SUMS = 2**12, 2**22
# Larger skewnesses are cut off, and smaller ones are none.
_MOST_SKEW, _LEAST_SKEW = 0.5, 1e-6


class SegmentSums(NamedTuple):
    """What is known of S segments and J statistics.

    Args:
        sums: S, ``[S, J]``.
        variance: V, ``[S, J]``.
        skewness: M / V^{3/2}, ``[S, J]``.
        information: sum w E r^2, ``[S, J]``.
        predicted: the weighted mean of what is predicted, ``[S, J]``.
        total: sum w, ``[S]``.
        squares: sum w^2, ``[S]``.
        is_tested: whether a segment has enough variance for a statistic, ``[S, J]``.
        scores: of the observed targets, 0 where nothing is tested, ``[S, J]``.
        pvalues: adjusted for all segments and statistics, ``[S, J]``; 1 where nothing is tested.
    """

    sums: jax.Array
    variance: jax.Array
    skewness: jax.Array
    information: jax.Array
    predicted: jax.Array
    total: jax.Array
    squares: jax.Array
    is_tested: jax.Array
    scores: jax.Array
    pvalues: jax.Array


@on_devices
def segment_sums(
    axis: Axis,
    shared: tuple[jax.Array, SegmentTable, jax.Array],
    rows: tuple[Rows, jax.Array],
    n_resamples: int,
    sampler: NullSampler,
) -> tuple[SegmentSums, jax.Array]:
    """The sums of all segments, and the largest absolute score of data sets under H0, ``[R]``.

    `shared` are a key, the table of segments, and the least variance of a count of events that is
    tested; `rows` are data, samples with the target among them, and codes of levels ``[n, C]``.
    """
    key, table, least = shared
    data, codes = rows
    data = clean(data, axis)
    weights, numbers = data.weights, row_numbers(data.weights, axis)
    is_exact, by_pit = not isinstance(data.targets, Between), data.predictions.is_ordered
    statistics = statistics_of(data.predictions, is_exact).fitted(data.predictions, weights, axis)
    multiplier_key = jax.random.fold_in(key, MULTIPLIERS)
    sets = sampler.data_sets(key, multiplier_key, data, numbers, axis, by_pit)

    def residuals(rows: SampledRows, batches: jax.Array) -> jax.Array:
        return statistics.values(rows.predictions, sets.targets(rows, batches))

    def moments(chunk: tuple[tuple[SampledRows, jax.Array], jax.Array]) -> list[jax.Array]:
        """Sums of w^2 and w^3 times moments, of w times others, and of powers of w, ``[S, …]``."""
        (rows, codes), weights = chunk
        if statistics.knows_moments:
            observed = statistics.values(rows.predictions, rows.targets[:, None])
        else:
            observed = residuals(rows, jnp.asarray(_MOMENT_BATCHES))
        found, w = statistics.moments(rows.predictions, observed), weights[:, None]
        columns = [w**2 * found.second, w**3 * found.third, w**2 * found.squares]
        columns += [w * found.second, w * found.predicted, w, w**2]
        sums = table.sums(codes, jnp.concatenate(columns, axis=1))
        ends = np.cumsum([x.shape[1] for x in columns])[:-1]
        return jnp.split(sums, ends.tolist(), axis=1)

    found = sum_over_rows(moments, (sets.rows, codes), weights, _PER_ROW, axis)
    second, third, squares, information, predicted, total, square = found
    variance, information, observed = (
        statistics.squares(x, second) for x in (second, information, squares)
    )
    can_vary = variance > 0
    deviation = jnp.sqrt(jnp.where(can_vary, variance, 1.0))
    measured = jnp.square(information) / jnp.where(can_vary, variance, 1.0)
    events = measured[:, jnp.array(statistics.measured_by)] * statistics.unit_of_variance
    is_tested = can_vary & (events >= least.astype(events.dtype)) & table.is_segment[:, None]
    skewness = statistics.cubes(third, second) / deviation**3
    if not sampler.redraws:
        # Random signs make sums symmetric, and a skew scale would stretch one of their sides.
        skewness = jnp.zeros_like(skewness)
    missing = variance_deficit(observed, variance)

    def scores(sums: jax.Array) -> jax.Array:
        """Of sums ``[S, D, J]`` around the means; 0 where nothing is tested."""
        g = jnp.clip(skewness, -_MOST_SKEW, _MOST_SKEW)[:, None]
        z = normal_scores(sums / deviation[:, None], g)
        return jnp.where(is_tested[:, None], z, 0.0)

    def of_batches(batches: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The largest scores of data sets under H0, and the observed sums ``[S, J]``."""
        of_sets = sets.sums(
            residuals,
            table.sums,
            codes,
            weights,
            batches,
            table.n_together,
            lambda x: bounded(x, statistics.most_multiplied),
            axis,
        )
        of_sets = of_sets.transformed(lambda x: statistics.centred(x, second))
        under_h0 = of_sets.under_h0(missing[:, None], total)
        observed, sums = (
            statistics.around_mean(x, variance, information) for x in (of_sets.observed, under_h0)
        )
        return jnp.max(jnp.abs(scores(sums)), axis=(0, 2)), observed[:, 0]

    numbers_of_batch = DRAWS_PER_BATCH * len(statistics.names) * (1 if sampler.redraws else 2)
    together = _SUMS // (table.size * numbers_of_batch)
    maxima, sums = in_passes(of_batches, n_resamples, together)
    # All weights are NaN if a row is invalid.
    is_valid = jnp.isfinite(all_sum(jnp.sum(weights), axis))
    found_scores = jnp.where(is_valid, scores(sums[:, None])[:, 0], jnp.nan)
    sizes = jnp.abs(found_scores)
    # Scores of equal data sets may differ by rounding.
    least = sizes - rounding_of(jnp.append(maxima, jnp.max(sizes)))
    pvalues = jnp.where(is_tested, counted_pvalue(least, maxima), 1.0)
    observed_sums = SegmentSums(
        sums=sums,
        variance=variance,
        skewness=skewness,
        information=information,
        predicted=predicted / jnp.where(total > 0, total, 1.0),
        total=total[:, 0],
        squares=square[:, 0],
        is_tested=is_tested,
        scores=found_scores,
        pvalues=jnp.where(is_valid, pvalues, jnp.nan),
    )
    return observed_sums, maxima


def sums_at(score: float, skewness: np.ndarray) -> np.ndarray:
    """The sums in units of their deviations that have a score."""
    g = np.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    is_skew = np.abs(g) > _LEAST_SKEW
    g = np.where(is_skew, g, 1.0)
    return np.where(is_skew, 2 / g * ((1 + g * (score - g / 6) / 6) ** 3 - 1), score)
