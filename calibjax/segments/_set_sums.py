"""Sums of residuals of many data sets under H0 over the rows of each segment.

A chunk of rows is one product of a matrix of ones and zeros ``[S, n]`` with the residuals of many
data sets ``[n, D K]``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._distribution import Distribution
from calibjax._interval_censored import Between
from calibjax._sharding import Axis
from calibjax._struct import PyTree, struct
from calibjax.hypothesis_tests import target_sets
from calibjax.resampling import DRAWS_PER_GROUP, Multipliers, sum_over_rows
from calibjax.segments._row_moments import bounded
from calibjax.segments._segments import SegmentTable
from calibjax.segments._statistics import Statistics

# How many sums are in memory at a time.
_SUMS = 2**22
# The groups of draws whose moments are taken for the model's, where these are not known.
_MOMENT_GROUPS = 2**31 - 2 - np.arange(4, dtype=np.int32)


class Rows(NamedTuple):
    """Rows with what data sets under H0 are made of.

    Args:
        samples: n predictions and their targets.
        hidden: between which ends a draw of each row is hidden; None if draws are known.
        numbers: the numbers of the rows in all data, ``[n]``.
        codes: the level of each column, ``[n, C]``.
        units: what multipliers take of each row.
    """

    samples: tuple[Distribution, PyTree]
    hidden: Between | None
    numbers: jax.Array
    codes: jax.Array
    units: jax.Array


class SumsOfSets(NamedTuple):
    """Sums of residuals of D data sets in each segment.

    Args:
        observed: of the observed targets, ``[S, 1, K]``.
        drawn: of redrawn targets, ``[S, D, K]``.
        multiplied: of observed residuals with multipliers, ``[S, D, K]``, or None.
        factors: of the multipliers themselves, ``[S, D]``, or None.
    """

    observed: jax.Array
    drawn: jax.Array
    multiplied: jax.Array | None = None
    factors: jax.Array | None = None


@struct
class SetSums:
    """How data sets under H0 are made of chunks of rows, and summed over segments.

    Args:
        key: the key of the draws.
        table: the segments.
        statistics: what is summed.
        multipliers: of the rows, if residuals are multiplied instead of targets redrawn.
    """

    key: jax.Array
    table: SegmentTable
    statistics: Statistics
    multipliers: Multipliers | None

    def residuals(self, rows: Rows, groups: jax.Array) -> jax.Array:
        """Of the observed targets and of draws, ``[n, 1 + D, K]``."""
        predictions, _ = rows.samples
        by_place = predictions.is_ordered
        sets = target_sets(self.key, rows.samples, rows.hidden, rows.numbers, groups, by_place)
        return self.statistics.residuals(predictions, sets)

    def moments(self, chunk: tuple[Rows, jax.Array]) -> list[jax.Array]:
        """Sums of w^2 and w^3 times moments, of w times others, and of powers of w, ``[S, …]``."""
        rows, weights = chunk
        predictions, targets = rows.samples
        if self.statistics.knows_moments:
            residuals = self.statistics.residuals(predictions, targets[:, None])
        else:
            residuals = self.residuals(rows, jnp.asarray(_MOMENT_GROUPS))
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
        sums = self.table.sums(rows.codes, jnp.concatenate(columns, axis=1))
        ends = np.cumsum([x.shape[1] for x in columns])[:-1]
        return jnp.split(sums, ends.tolist(), axis=1)

    def of_groups(
        self, groups: jax.Array, rows: Rows, weights: jax.Array, axis: Axis
    ) -> SumsOfSets:
        """The sums of the data sets of some groups of draws."""
        n_draws, size = groups.size * DRAWS_PER_GROUP, self.statistics.n_residuals
        shared: PyTree = None if self.multipliers is None else self.multipliers.shared(groups)

        def of_rows(chunk: tuple[Rows, jax.Array]) -> jax.Array:
            rows, weights = chunk
            residuals, w = self.residuals(rows, groups), weights[:, None, None]
            columns = (w * residuals).reshape(weights.size, -1)
            if self.multipliers is not None:
                observed = bounded(residuals[:, :1], self.statistics.most_multiplied)
                xi = self.multipliers.values(rows.units, shared)
                multiplied = (xi[..., None] * (w * observed)).reshape(weights.size, -1)
                columns = jnp.concatenate([columns, multiplied, weights[:, None] * xi], axis=1)
            return self.table.sums(rows.codes, columns)

        per_row = self.table.n_together + self._numbers_of_row(n_draws)
        sums = sum_over_rows(of_rows, rows, weights, per_row, axis)
        n_of_targets = (1 + n_draws) * size
        of_targets = sums[:, :n_of_targets].reshape(self.table.size, -1, size)
        observed, drawn = of_targets[:, :1], of_targets[:, 1:]
        if self.multipliers is None:
            return SumsOfSets(observed, drawn)
        multiplied = sums[:, n_of_targets:-n_draws].reshape(drawn.shape)
        return SumsOfSets(observed, drawn, multiplied, sums[:, -n_draws:])

    def _numbers_of_row(self, n_draws: int) -> int:
        sets = 1 + n_draws if self.multipliers is None else 2 + 2 * n_draws
        return sets * self.statistics.n_residuals

    def passes(self, n_resamples: int) -> jax.Array:
        """Groups of draws, in each row as many as have sums that fit into memory."""
        n_groups = -(-n_resamples // DRAWS_PER_GROUP)
        of_group = self.table.size * self._numbers_of_row(DRAWS_PER_GROUP)
        together = max(1, min(n_groups, _SUMS // of_group))
        n_passes = -(-n_groups // together)
        together = -(-n_groups // n_passes)
        groups = jnp.arange(n_passes * together, dtype=jnp.int32)
        return groups.reshape(n_passes, together)
