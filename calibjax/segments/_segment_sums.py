r"""The sums of all segments, and the largest score of data sets under H0.

With the residuals r_i of a statistic, weights w_i, and moments of the model,

    S = sum_i w_i r_i,    V = sum_i w_i^2 E r_i^2,    M = sum_i w_i^3 E r_i^3

over the rows of a segment.  If the model is calibrated, Z = S / sqrt(V) has the skewness
g = M / V^{3/2}, and a score that is nearly normal (`normal_scores`).  Large g are cut off: sums of
few rare events are not gamma variables, and a strong transformation would hide large sums.

Data sets under H0 are those of `nulls/engine.py`.  In clusters and over times the observed
residuals are turned, and they are cut off where they are so large that they would make the band of
all segments too wide.  These sums are symmetric, so that g is 0, and V is their mean square over
all data sets, the observed one included: the variance that the model says is that of independent
rows, and shared shocks would make the location of all segments larger than any other score.

The contribution of the segment's own location is subtracted from all sums of spreads.

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
from jax import lax

from calibjax._base.sharding import Axis, all_sum, on_devices
from calibjax._base.struct import rows_of, struct
from calibjax._data.data import Rows, clean, with_known_weights
from calibjax.nulls.engine import Chunk, Found, run
from calibjax.nulls.ranks import counted_pvalue, normal_scores, rounding_of
from calibjax.nulls.readable_sums import ReadableSums
from calibjax.nulls.sampler import NullSampler
from calibjax.residuals.readable import statistics_of
from calibjax.segments._segments import SegmentTable

# The number of sums of all data sets that are in memory at a time.
_VALUES = 2**24
# Larger skewnesses are cut off, and smaller ones are 0.
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
) -> tuple[SegmentSums, jax.Array, jax.Array, jax.Array]:
    """The sums of all segments, the largest absolute score, the smallest p-value, and draws.

    The draws are the largest absolute scores of data sets under H0, ``[R]``.
    `shared` are a key, the table of segments, and the least variance of a count of events that is
    tested; `rows` are data, samples with the target among them, and codes of levels ``[n, C]``.
    """
    key, table, least = shared
    data, codes = rows
    data = with_known_weights(clean(data, axis))
    statistics = statistics_of(data.predictions, not data.is_censored, not sampler.redraws)
    statistics = statistics.fitted(data.predictions, data.weights, axis)

    def of_segments(table: SegmentTable) -> tuple[dict[str, jax.Array], jax.Array]:
        statistic = _Sums(codes, statistics, data.predictions.is_ordered, table)
        [found] = run([statistic], key, data, n_resamples, sampler, axis)
        return _scored(found, statistic, least)

    most = _VALUES // (n_resamples * len(statistics.names))
    found, maxima = lax.map(of_segments, table.cut(most))
    maxima = jnp.max(maxima, axis=0)
    found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)
    # All weights are NaN if a row is invalid.
    is_valid = jnp.isfinite(all_sum(jnp.sum(data.weights), axis))
    scores = jnp.where(is_valid, found.pop("scores"), jnp.nan)
    sizes = jnp.abs(scores)
    # Scores of equal data sets may differ by rounding.
    largest = jnp.max(sizes)
    least = sizes - rounding_of(jnp.append(maxima, largest))
    pvalues = jnp.where(found["is_tested"], counted_pvalue(least, maxima), 1.0)
    pvalues = jnp.where(is_valid, pvalues, jnp.nan)
    return SegmentSums(**found, scores=scores, pvalues=pvalues), largest, jnp.min(pvalues), maxima


def _scored(
    found: Found, statistic: "_Sums", least: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """`SegmentSums` but for p-values, by field, and the largest score of each data set, ``[R]``."""
    statistics, table = statistic.statistics, statistic.table
    second, third, _, information, predicted, total, square = statistic.parts_of(found.moments)
    of_model, information = (statistics.squares(x, second) for x in (second, information))
    can_vary = of_model > 0
    measured = jnp.square(information) / jnp.where(can_vary, of_model, 1.0)
    events = rows_of(measured.T, np.array(statistics.measured_by)).T * statistics.unit_of_variance
    is_tested = (
        can_vary[:, : events.shape[1]]
        & (events >= least.astype(events.dtype))
        & table.is_segment[:, None]
    )

    variance = found.variance(of_model, found.observed, found.draws)
    every = jnp.concatenate([found.observed[None], found.draws]).swapaxes(0, 1)
    every = statistics.around_mean(every, variance, information).swapaxes(0, 1)
    sums, draws = every[0], every[1:]
    variance = found.variance(of_model, sums, draws)
    deviation = jnp.sqrt(jnp.where(variance <= 0, 1.0, variance))  # NaN of too few units remains
    # Random signs make sums symmetric, and a skew scale would stretch one of their sides.
    skewness = statistics.cubes(third, second) / deviation**3 if found.redraws else 0.0 * deviation
    g = jnp.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    scores = normal_scores(every / deviation[None], g[None])
    n_statistics = len(statistics.names)
    if not found.redraws:
        turned = np.array(statistics.turned)
        scores = rows_of(scores.T, np.maximum(turned, 0)).T
        is_tested &= (turned >= 0)[None]
    scores = jnp.where(is_tested[None], scores, 0.0)
    of_names = np.s_[:, :n_statistics]
    observed = dict(
        sums=sums[of_names],
        variance=variance[of_names],
        skewness=skewness[of_names],
        information=information[of_names],
        predicted=predicted[of_names] / jnp.where(total > 0, total, 1.0),
        total=total[:, 0],
        squares=square[:, 0],
        is_tested=is_tested,
        scores=scores[0],
    )
    return observed, jnp.max(jnp.abs(scores[1:]), axis=(1, 2))


@struct
class _Sums(ReadableSums):
    """The sums of all statistics in some segments.

    Args:
        others: codes of levels ``[n, C]``.
        table: the segments.
    """

    table: SegmentTable

    def in_groups(self, chunk: Chunk, values: jax.Array, factors: jax.Array) -> jax.Array:
        return self.table.sums(chunk.others, values, factors)

    @property
    def n_groups(self) -> int:
        return self.table.size

    def numbers_of_row(self, shapes: list[tuple[int, int, int]], redraws: bool) -> int:
        return super().numbers_of_row(shapes, redraws) + self.table.n_together


def sums_at(score: float, skewness: np.ndarray) -> np.ndarray:
    """The sums in units of their deviations that have a score."""
    g = np.clip(skewness, -_MOST_SKEW, _MOST_SKEW)
    is_skew = np.abs(g) > _LEAST_SKEW
    g = np.where(is_skew, g, 1.0)
    return np.where(is_skew, 2 / g * ((1 + g * (score - g / 6) / 6) ** 3 - 1), score)
