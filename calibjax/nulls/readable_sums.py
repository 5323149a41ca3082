"""Sums of interpretable residuals, over all rows or over groups of rows."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.sharding import Axis
from calibjax._base.struct import PyTree, static, struct
from calibjax._data.data import Rows
from calibjax._numbers.arithmetic import dot
from calibjax.nulls.engine import Chunk, Found, Statistic, factor_of_drawn, sums_of_sets
from calibjax.residuals.readable import Readable, bounded


@struct
class ReadableSums(Statistic):
    """The sums of all J statistics over the rows of S groups, by default over all rows.

    Args:
        others: what says which groups a row is in.
        statistics: those of the family of the predictions.
        by_pit: whether they are functions of the PIT.
    """

    others: PyTree
    statistics: Readable
    by_pit: bool = static()

    @property
    def n_groups(self) -> int:
        """S."""
        return 1

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(self.n_groups, len(self.statistics.most_multiplied))]

    def in_groups(self, chunk: Chunk, values: jax.Array, factors: jax.Array) -> jax.Array:
        """The sums of values ``[n, P]`` times factors ``[n, K]`` of each group, ``[S, P, K]``."""
        return dot(values.T, factors)[None]

    def moments(self, chunk: Chunk) -> jax.Array:
        """The sums that `parts_of` splits, ``[S, P]``."""
        targets = chunk.rows.targets[:, None] if self.statistics.knows_moments else chunk.targets()
        observed = self.statistics.values(chunk.rows.predictions, targets)
        found = self.statistics.moments(chunk.rows.predictions, observed)
        w, of_observed = chunk.weights[:, None], chunk.observed_weights[:, None]
        columns = [w**2 * found.second, w**3 * found.third, w**2 * found.squares]
        columns += [w * found.second, of_observed * found.predicted, of_observed, of_observed**2]
        return self.in_groups(chunk, jnp.concatenate(columns, axis=1), jnp.ones_like(w))[..., 0]

    def parts_of(self, moments: jax.Array) -> list[jax.Array]:
        """Sums of w^2 and w^3 times moments, of w times others, and of powers of w, ``[S, …]``."""
        size = len(self.statistics.most_multiplied)
        ends = np.cumsum([*[(moments.shape[1] - size - 2) // 4] * 4, size, 1])
        return jnp.split(moments, ends.tolist(), axis=1)

    def missing(self, moments: jax.Array) -> list[jax.Array]:
        second, _, squares, *_ = self.parts_of(moments)
        observed = self.statistics.squares(squares, second)[:, None]
        variance = self.statistics.squares(second, second)[:, None]
        return [factor_of_drawn(observed, variance, variance)]

    def sums(self, chunk: Chunk) -> jax.Array:
        w = chunk.weights[:, None]
        residuals = self.statistics.values(chunk.rows.predictions, chunk.targets())
        residuals = chunk.weighed(residuals)
        sums = self.in_groups(chunk, residuals.reshape(w.size, -1), w)
        sums = sums.reshape(self.n_groups, -1, residuals.shape[2])
        if chunk.xi is None:
            return sums
        observed = w * bounded(residuals[:, 0], self.statistics.most_multiplied)
        return jnp.concatenate([sums, self.in_groups(chunk, chunk.xi, observed)], axis=1)

    def values(
        self, sums: jax.Array, moments: jax.Array, missing: list[jax.Array]
    ) -> tuple[jax.Array, tuple[()]]:
        centred = self.statistics.centred(sums, self.parts_of(moments)[0])
        return sums_of_sets(centred, missing).swapaxes(0, 1), ()


def sums_over_rows(statistics: Readable, data: Rows, axis: Axis) -> ReadableSums:
    """The sums over all rows of clean data."""
    statistics = statistics.fitted(data.predictions, data.weights, axis)
    return ReadableSums((), statistics, data.predictions.is_ordered)


def tested_squares(statistic: ReadableSums, found: Found) -> jax.Array:
    """The squares of the tested statistics of all rows ``[J', 1 + R]``, the observed ones first."""
    every = jnp.concatenate([found.observed[None], found.draws])[:, 0]
    return jnp.square(every[:, [column for column in statistic.statistics.turned if column >= 0]]).T
