r"""The sums of all segments, and the largest score of data sets under H0.

With the residuals r_i of a statistic, weights w_i, and moments of the model,

    S = sum_i w_i r_i,    V = sum_i w_i^2 E r_i^2,    M = sum_i w_i^3 E r_i^3

over the rows of a segment.  Its score is a function of S / sqrt(V) and M / V^{3/2} (`_scores.py`).
Data sets under H0 have redrawn targets.  In clusters and over times they have the sums

    sum_i w_i xi_i r_i + lambda sum_i w_i s_i,    lambda^2 = max(0, 1 - sum w_i^2 r_i^2 / V)

with multipliers xi, residuals r that are cut off where they are so large that they would make the
band of all segments too wide, and residuals s of redrawn targets, and of times, the mean of the
segment's residuals is taken out; these sums are symmetric, and g is 0.

From each sum of spreads, observed or not, then goes what the segment's own location adds to it.

All segments and statistics share draws and multipliers, so that the largest absolute score of a
data set knows how they depend on each other.
O(n S R J) time as products of matrices, and memory that depends on neither n nor R.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._interval_censored import Between
from calibjax._rows import Data, clean
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax.hypothesis_tests import Law, lacking, multipliers_of_law
from calibjax.resampling import TimeMultipliers, rounding_of, row_numbers, sum_over_rows
from calibjax.segments._scores import scores_of
from calibjax.segments._segments import SegmentTable
from calibjax.segments._set_sums import Rows, SetSums
from calibjax.segments._statistics import statistics_of

# How many numbers of a row are in memory for its moments, about.
_PER_ROW = 2**12


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
    rows: tuple[Data, jax.Array],
    n_resamples: int,
    law: Law,
) -> tuple[SegmentSums, jax.Array]:
    """The sums of all segments, and the largest absolute score of data sets under H0, ``[R]``.

    `shared` are a key, the table of segments, and the least variance of a count of events that is
    tested; `rows` are data, samples with the target among them, and codes of levels ``[n, C]``.
    """
    key, table, least = shared
    data, codes = rows
    data = clean(data, axis)
    weights, numbers = data.weights, row_numbers(data.weights, axis)
    is_coarse = isinstance(data.targets, Between)
    hidden = data.targets.hiding(weights != 0, axis) if is_coarse else None
    xi = multipliers_of_law(key, data, numbers, law, axis)
    units = numbers if xi is None else xi.rows
    statistics = statistics_of(data.predictions, weights, not is_coarse, axis)
    sets = SetSums(key, table, statistics, xi)
    of_rows = Rows(data.samples, hidden, numbers, codes, units)

    found = sum_over_rows(sets.moments, of_rows, weights, _PER_ROW, axis)
    second, third, squares, information, predicted, total, square = found
    total, square = total[:, 0], square[:, 0]
    centres = statistics.centres(second)
    variance = statistics.squares(second, centres)
    information = statistics.squares(information, centres)
    can_vary = variance > 0
    deviation = jnp.sqrt(jnp.where(can_vary, variance, 1.0))
    measured = jnp.square(information) / jnp.where(can_vary, variance, 1.0)
    events = measured[:, jnp.array(statistics.measured_by)] * statistics.unit_of_variance
    is_tested = can_vary & (events >= least.astype(events.dtype)) & table.is_segment[:, None]
    skewness = statistics.cubes(third, centres) / deviation**3
    if xi is not None:
        # Random signs make sums symmetric, and a skew scale would stretch one of their sides.
        skewness = jnp.zeros_like(skewness)
    missing = lacking(statistics.squares(squares, centres), variance)

    def scores(sums: jax.Array) -> jax.Array:
        """Of sums ``[S, D, J]`` around the means; 0 where nothing is tested."""
        z = scores_of(sums / deviation[:, None], skewness[:, None])
        return jnp.where(is_tested[:, None], z, 0.0)

    def of_groups(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The observed sums ``[S, J]``, and the largest scores of data sets under H0."""
        of_sets = sets.of_groups(groups, of_rows, weights, axis)
        observed, sums = (statistics.centred(x, centres) for x in of_sets[:2])
        if of_sets.multiplied is not None:
            redrawn, sums = sums, statistics.centred(of_sets.multiplied, centres)
            if of_sets.factors is not None and isinstance(xi, TimeMultipliers):
                means = of_sets.factors / jnp.where(total > 0, total, 1.0)[:, None]
                sums = sums - means[..., None] * observed
            sums = sums + missing[:, None] * redrawn
        observed, sums = (
            statistics.around_mean(x, variance, information) for x in (observed, sums)
        )
        return observed[:, 0], jnp.max(jnp.abs(scores(sums)), axis=(0, 2))

    observed, maxima = lax.map(of_groups, sets.passes(n_resamples))
    sums, maxima = observed[0], maxima.reshape(-1)[:n_resamples]
    # All weights are NaN if a row is invalid.
    is_valid = jnp.isfinite(all_sum(jnp.sum(weights), axis))
    found_scores = jnp.where(is_valid, scores(sums[:, None])[:, 0], jnp.nan)
    pvalues = jnp.where(is_tested, adjusted_pvalues(found_scores, maxima), 1.0)
    pvalues = jnp.where(is_valid, pvalues, jnp.nan)
    observed_sums = SegmentSums(
        sums=sums,
        variance=variance,
        skewness=skewness,
        information=information,
        predicted=predicted / jnp.where(total > 0, total, 1.0)[:, None],
        total=total,
        squares=square,
        is_tested=is_tested,
        scores=found_scores,
        pvalues=pvalues,
    )
    return observed_sums, maxima


def adjusted_pvalues(scores: jax.Array, maxima: jax.Array) -> jax.Array:
    """(1 + #{maxima >= |score|}) / (R + 1); scores of equal data sets may differ by rounding."""
    ordered = jnp.sort(maxima)
    least = jnp.abs(scores) - rounding_of(jnp.append(ordered, jnp.max(jnp.abs(scores))))
    n_below = jnp.searchsorted(ordered, least, side="left")
    n_draws = maxima.size
    return (1 + n_draws - n_below).astype(scores.dtype) / (n_draws + 1)
