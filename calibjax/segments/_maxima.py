r"""The sums of all segments, and the largest score of data sets under H0.

With the residuals r_i of a statistic, weights w_i, and moments of the model,

    S = sum_i w_i r_i,    V = sum_i w_i^2 E r_i^2,    M = sum_i w_i^3 E r_i^3

over the rows of a segment.  Its score is a function of S / sqrt(V) and M / V^{3/2} (`_scores.py`).
Data sets under H0 have redrawn targets.  In clusters and over times they have the sums

    sum_i w_i xi_i r_i + lambda sum_i w_i s_i,    lambda^2 = max(0, 1 - sum w_i^2 r_i^2 / V)

with multipliers xi and residuals s of redrawn targets, and of times, the mean of the segment's
residuals is taken out.  All segments and statistics share draws and multipliers, so that the
largest absolute score of a data set knows how they depend on each other.

A chunk of rows is one product of a matrix of ones and zeros ``[S, n]`` with the residuals of many
data sets ``[n, D J]``: O(n S R J) time, and memory that depends on neither n nor R.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._between import Between
from calibjax._rows import Data, clean
from calibjax._sharding import Axis, all_sum, on_devices
from calibjax._struct import struct
from calibjax.hypothesis_tests import REDRAWN, Law, lacking, target_sets
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    Multipliers,
    TimeMultipliers,
    multipliers,
    rounding_of,
    row_numbers,
    sum_over_rows,
)
from calibjax.segments._scores import scores_of
from calibjax.segments._segments import SegmentTable
from calibjax.segments._statistics import Statistics, statistics_of

# How many sums are in memory at a time.
_SUMS = 2**22
# Folded into the key for multipliers, and for the draws whose moments are taken for the model's.
_MULTIPLIERS, _MOMENTS = 2**31 - 1, 2**31 - 2
_MOMENT_GROUPS = 4


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


class _Moments(NamedTuple):
    """What the model says of each segment, and how much less was observed.

    Args:
        centres: what `Statistics.centred` takes, ``[S]``.
        variance, skewness: of each statistic, ``[S, J]``.
        missing: lambda, ``[S, J]``.
        is_tested: ``[S, J]``.
    """

    centres: jax.Array
    variance: jax.Array
    skewness: jax.Array
    missing: jax.Array
    is_tested: jax.Array


@struct
class _Rows:
    """How data sets under H0 are made of chunks of rows, and summed over segments.

    A chunk is ((samples, hidden, numbers), codes, units), and weights.
    """

    key: jax.Array
    table: SegmentTable
    statistics: Statistics
    multipliers: Multipliers | None

    def residuals(self, of_targets: Any, groups: jax.Array) -> jax.Array:
        """Of the observed targets and of draws, ``[n, 1 + D, K]``."""
        samples, hidden, numbers = of_targets
        predictions, _ = samples
        by_place = predictions.is_ordered and not predictions.has_atoms
        sets = target_sets(self.key, samples, hidden, numbers, groups, by_place)
        return self.statistics.residuals(predictions, sets)

    def moments(self, chunk: Any) -> list[jax.Array]:
        """Sums of w^2 and w^3 times moments, of w times others, and of powers of w, ``[S, …]``."""
        (of_targets, codes, _), weights = chunk
        (predictions, targets), *_ = of_targets
        if self.statistics.knows_moments:
            residuals = self.statistics.residuals(predictions, targets[:, None])
        else:
            groups = _MOMENTS - jnp.arange(_MOMENT_GROUPS, dtype=jnp.int32)
            residuals = self.residuals(of_targets, groups)
        found = self.statistics.moments(predictions, residuals)
        w = weights[:, None]
        columns = [
            w**2 * found.second,
            w**3 * found.third,
            w**2 * found.squares,
            w * found.second,
            w * found.predicted,
            w,
            w**2,
        ]
        sums = self.table.sums(codes, jnp.concatenate(columns, axis=1))
        ends = np.cumsum([x.shape[1] for x in columns])[:-1]
        return jnp.split(sums, ends.tolist(), axis=1)

    def of_groups(self, groups: jax.Array, rows: Any, weights: jax.Array, axis: Axis) -> Any:
        """Sums of residuals ``[S, D, K]``: as observed, of draws, and with multipliers.

        With these come the means of the multipliers in each segment, ``[S, D]``.
        """
        shared: Any = None if self.multipliers is None else self.multipliers.shared(groups)
        n_draws = groups.size * DRAWS_PER_GROUP

        def of_rows(chunk: Any) -> jax.Array:
            (of_targets, codes, units), weights = chunk
            residuals = weights[:, None, None] * self.residuals(of_targets, groups)
            columns = residuals.reshape(weights.size, -1)
            if self.multipliers is not None:
                xi = self.multipliers.values(units, shared)
                multiplied = (xi[..., None] * residuals[:, :1]).reshape(weights.size, -1)
                factors = weights[:, None] * xi
                columns = jnp.concatenate([columns, multiplied, factors], axis=1)
            return self.table.sums(codes, columns)

        per_row = self.table.n_together + self._numbers_of_row(n_draws)
        sums = sum_over_rows(of_rows, rows, weights, per_row, axis)
        n_numbers = self.statistics.n_residuals
        first = (1 + n_draws) * n_numbers
        of_targets = sums[:, :first].reshape(self.table.size, -1, n_numbers)
        observed, drawn = of_targets[:, :1], of_targets[:, 1:]
        if self.multipliers is None:
            return observed, drawn, None, None
        multiplied = sums[:, first:-n_draws].reshape(drawn.shape)
        return observed, drawn, multiplied, sums[:, -n_draws:]

    def _numbers_of_row(self, n_draws: int) -> int:
        sets = 1 + n_draws if self.multipliers is None else 2 + 2 * n_draws
        return sets * self.statistics.n_residuals

    def passes(self, n_resamples: int) -> jax.Array:
        """Groups of draws, so many in a row that their sums fit into memory."""
        n_groups = -(-n_resamples // DRAWS_PER_GROUP)
        of_group = self.table.size * self._numbers_of_row(DRAWS_PER_GROUP)
        together = max(1, min(n_groups, _SUMS // of_group))
        n_passes = -(-n_groups // together)
        together = -(-n_groups // n_passes)
        groups = jnp.arange(n_passes * together, dtype=jnp.int32)
        return groups.reshape(n_passes, together)


@on_devices
def segment_sums(
    axis: Axis, shared: Any, rows: tuple[Data, jax.Array], n_resamples: int, law: Law
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
    xi, units = None, numbers
    if law != REDRAWN:
        if data.clusters is None and data.times is None:
            data = dataclasses.replace(data, clusters=numbers)
        multiplier_key = jax.random.fold_in(key, _MULTIPLIERS)
        xi = multipliers(multiplier_key, data, law.kind == "normal", law.n_times, axis)
        units = xi.rows
    statistics = statistics_of(data.predictions, weights, not is_coarse, axis)
    of_rows = _Rows(key, table, statistics, xi)
    chunks = (data.samples, hidden, numbers), codes, units

    found = sum_over_rows(of_rows.moments, chunks, weights, _PER_ROW, axis)
    second, third, squares, information, predicted, total, square = found
    total, square = total[:, 0], square[:, 0]
    centres = statistics.centres(second)
    variance = statistics.squares(second, centres)
    information = statistics.squares(information, centres)
    can_vary = variance > 0
    deviation = jnp.sqrt(jnp.where(can_vary, variance, 1.0))
    measured = jnp.square(information) / jnp.where(can_vary, variance, 1.0)
    events = measured[:, jnp.array(statistics.measured_by)] * statistics.unit_of_variance
    is_tested = can_vary & (events >= least) & table.is_segment[:, None]
    skewness = statistics.cubes(third, centres) / deviation**3
    missing = lacking(statistics.squares(squares, centres), variance)

    def scores(sums: jax.Array) -> jax.Array:
        """Of sums ``[S, D, J]``; 0 where nothing is tested."""
        z = scores_of(sums / deviation[:, None], skewness[:, None])
        return jnp.where(is_tested[:, None], z, 0.0)

    def of_groups(groups: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The observed sums ``[S, J]``, and the largest scores of data sets under H0."""
        observed, drawn, multiplied, factors = of_rows.of_groups(groups, chunks, weights, axis)
        observed, sums = (statistics.centred(x, centres) for x in (observed, drawn))
        if multiplied is not None:
            redrawn, sums = sums, statistics.centred(multiplied, centres)
            if isinstance(xi, TimeMultipliers):
                means = factors / jnp.where(total > 0, total, 1.0)[:, None]
                sums = sums - means[..., None] * observed
            sums = sums + missing[:, None] * redrawn
        return observed[:, 0], jnp.max(jnp.abs(scores(sums)), axis=(0, 2))

    observed, maxima = lax.map(of_groups, of_rows.passes(n_resamples))
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


# How many numbers of a row are in memory for its moments, about.
_PER_ROW = 2**12


def adjusted_pvalues(scores: jax.Array, maxima: jax.Array) -> jax.Array:
    """(1 + #{maxima >= |score|}) / (R + 1); scores of equal data sets may differ by rounding."""
    ordered = jnp.sort(maxima)
    least = jnp.abs(scores) - rounding_of(jnp.append(ordered, jnp.max(jnp.abs(scores))))
    n_below = jnp.searchsorted(ordered, least, side="left")
    n_draws = maxima.size
    return (1 + n_draws - n_below).astype(scores.dtype) / (n_draws + 1)
