"""A map of the unit line for each forecast, from the rows whose forecasts were alike."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from calibjax._base.struct import static, struct, widened, widest_dtype
from calibjax._data import Distribution
from calibjax._numbers import dot
from calibjax.distributions import Counts
from calibjax.recalibration._pit_map import interpolated, known_quantiles, mended
from calibjax.recalibration._pit_map_fits import increasing
from calibjax.recalibration._probability_maps import Numbers

#: Rows that a map keeps, at most; of more rows every so manyth is kept.
MOST_ROWS = 4096
# Ranks of medians and of spreads are known at so many numbers.
_N_RANKS = 64
_TILE = 256


@struct
class ConditionalLine:
    """G of a forecast x, G_x(u) = (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c).

    The weights are w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)) for the normal scores s of the median,
    of the spread and of covariates among those of the fit.

    Args:
        probabilities: G at the levels ``[K]``.
        count: c > 0, how many rows G stands for, a scalar.
        width: h > 0, a scalar.
        below: how much of U_i is at most each level, ``[m, K]``.
        scores: s(x_i), ``[m, F]``.
        weights: how much each row counts, ``[m]``.
        grid: medians, logarithms of spreads, and covariates if they help, of evenly spaced ranks,
            nondecreasing, ``[F, Q]``.
        levels: of the unit line.
    """

    probabilities: Numbers
    count: Numbers
    width: Numbers
    below: Numbers
    scores: Numbers
    weights: Numbers
    grid: Numbers
    levels: Sequence[float] = static()

    def __call__(self, predictions: Distribution, covariates: jax.Array | None = None) -> Any:
        return mended(predictions, self.values(predictions, covariates), self.levels)

    def values(self, predictions: Distribution, covariates: jax.Array | None = None) -> jax.Array:
        """G of each forecast at the levels, ``[n, K]``."""
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        line = jax.tree.map(lambda x: jnp.asarray(x, dtype), self)
        features = median_and_spread(predictions).astype(dtype)
        if covariates is not None:
            features = jnp.concatenate([features, covariates.astype(dtype)], axis=1)
        # Without covariates that help the grid has two rows.
        scores = scores_among(line.grid, features[:, : line.grid.shape[0]])
        return jax.lax.map(line.at, scores, batch_size=_TILE)

    def at(self, scores: jax.Array) -> jax.Array:
        """G of *one* forecast with given normal scores ``[F]``, at the levels ``[K]``."""
        gaps = jnp.sum(jnp.square(jnp.asarray(self.scores) - scores[None]), axis=1)
        alike = self.weights * jnp.exp(-gaps / (2 * jnp.square(self.width)))
        sums = dot(jnp.asarray(alike), jnp.asarray(self.below)) + self.count * self.probabilities
        return increasing(sums / (jnp.sum(alike) + self.count))


@jax.jit
def median_and_spread(predictions: Distribution) -> jax.Array:
    """The median, and log(Q(Phi(1)) - Q(Phi(-1))) of each forecast, ``[n, 2]``.

    Of counts, whose quantiles are whole numbers, the mean and the logarithm of the deviation.
    """
    p = widened(predictions)
    if isinstance(p, Counts):
        deviation = jnp.maximum(p.standard_deviation(), jnp.finfo(p.mean().dtype).tiny)
        return jnp.stack([p.mean(), jnp.log(deviation)], axis=1)
    if p.has_known_quantiles:
        z, values = known_quantiles(p)
        low, median, high = interpolated(z, values, jnp.array([-1.0, 0.0, 1.0], z.dtype)).T
    else:
        dtype = widest_dtype(*jax.tree.leaves(p))
        low, median, high = jax.vmap(p.quantile)(ndtr(jnp.array([-1.0, 0.0, 1.0], dtype)))
    spread = jnp.maximum(high - low, jnp.finfo(median.dtype).tiny)
    return jnp.stack([median, jnp.log(spread)], axis=1)


def grid_of(features: np.ndarray) -> np.ndarray:
    """Numbers ``[F, Q]`` of evenly spaced ranks among features ``[m, F]``.

    If medians or spreads hardly differ, what differs is rounding: all have nearly the rank 1/2.  So
    have equal covariates.
    """
    ranks = (np.arange(_N_RANKS) + 0.5) / _N_RANKS
    grid = np.quantile(features, ranks, axis=0).T
    centres = np.median(features, axis=0)
    units = np.ones(len(centres))
    units[0] = np.exp(centres[1])
    ranges = grid[:, -1] - grid[:, 0]
    is_even = np.where(np.arange(len(units)) < 2, ranges < 0.01 * units, ranges <= 0)
    wide = centres[:, None] + units[:, None] * (ranks - 0.5)
    return np.where(is_even[:, None], wide, grid)


@jax.jit
def scores_among(grid: jax.Array, features: jax.Array) -> jax.Array:
    """The normal scores of the ranks of features ``[n, F]``, linear between those of the grid."""
    ranks = (jnp.arange(grid.shape[1], dtype=features.dtype) + 0.5) / grid.shape[1]
    columns = [jnp.interp(x, of_grid, ranks) for x, of_grid in zip(features.T, grid, strict=True)]
    # No rank is nearer to a forecast that is not known.
    return jnp.where(jnp.isfinite(features), ndtri(jnp.stack(columns, axis=1)), jnp.nan)
