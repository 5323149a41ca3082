"""Maps of PIT values of each forecast, from rows with similar forecasts and covariates."""

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri

from calibjax._base.check import check_array, check_shapes
from calibjax._base.compile import bucket, filled_up, quick_jit
from calibjax._base.struct import (
    is_array,
    is_traced,
    static,
    struct,
    widened,
    widest_dtype,
    with_fields,
)
from calibjax._data.capabilities import KnownQuantiles
from calibjax._data.distribution import Distribution
from calibjax._data.row_columns import CovariatesLike, covariate_columns
from calibjax._numbers.arithmetic import dot
from calibjax._numbers.validity import ArrayT
from calibjax.distributions import Counts, SurvivalCurve
from calibjax.recalibration._pit_map import interpolated, known_quantiles
from calibjax.recalibration._pit_map_fits import increasing
from calibjax.recalibration._probability_maps import Numbers, Step

#: Maximum number of rows that a map keeps, evenly spaced among more.
MOST_ROWS = 4096
# Number of ranks at which quantiles of medians and spreads are stored.
_N_RANKS = 64
# Number of forecasts that are compared with all rows at a time.
_TILE = 256


@struct
class ConditionalPITMap(Step):
    """G of a forecast x, G_x(u) = (sum_i w_i 1[U_i <= u] + c G(u)) / (sum_i w_i + c).

    The weights are w_i = exp(-|s(x) - s(x_i)|^2 / (2 h^2)) for the normal scores s of the median,
    of the spread and of covariates among those of the fit.

    Args:
        probabilities: G at the levels ``[K]``.
        count: c > 0, the weight of G in rows, a scalar.
        width: h > 0, a scalar.
        below: P(U_i <= level), ``[m, K]``.
        scores: s(x_i), ``[m, F]``.
        weights: weights of rows, ``[m]``.
        grid: quantiles of medians, of logarithms of spreads, and of covariates if they help, at
            evenly spaced ranks, nondecreasing, ``[F, Q]``.
        levels: levels of the unit interval.
    """

    probabilities: Numbers
    count: Numbers
    width: Numbers
    below: Numbers
    scores: Numbers
    weights: Numbers
    grid: Numbers
    levels: Sequence[float] = static()

    def values(self, predictions: Distribution, covariates: jax.Array | None = None) -> jax.Array:
        """G of each forecast at the levels, ``[n, K]``."""
        dtype = widest_dtype(*jax.tree.leaves(predictions))
        line = jax.tree.map(lambda x: jnp.asarray(x, dtype), self)
        features = median_and_spread(predictions).astype(dtype)
        if covariates is not None:
            features = jnp.concatenate([features, covariates.astype(dtype)], axis=1)
        # Without covariates that help the grid has two rows.
        scores = ndtri(ranks_among(jnp, line.grid, features[:, : line.grid.shape[0]]))
        return jax.lax.map(line.at, scores, batch_size=_TILE)

    def at(self, scores: jax.Array) -> jax.Array:
        """G of *one* forecast with given normal scores ``[F]``, at the levels ``[K]``."""
        gaps = jnp.sum(jnp.square(jnp.asarray(self.scores) - scores[None]), axis=1)
        alike = self.weights * jnp.exp(-gaps / (2 * jnp.square(self.width)))
        sums = dot(jnp.asarray(alike), jnp.asarray(self.below)) + self.count * self.probabilities
        return increasing(sums / (jnp.sum(alike) + self.count))


def with_filled_rows(steps: tuple, n: int) -> tuple:
    """The steps of a map fitted to a part of n rows, with its rows padded to the bucket of n."""

    def with_rows(step: Step) -> Step:
        if not isinstance(step, ConditionalPITMap):
            return step
        size, m = min(bucket(n), MOST_ROWS), len(step.weights)
        below, scores = (filled_up(np.asarray(x), size) for x in (step.below, step.scores))
        weights = np.append(step.weights, np.zeros(size - m))
        return with_fields(step, below=below, scores=scores, weights=weights)

    return tuple(map(with_rows, steps))


@functools.partial(quick_jit, light=True)
def median_and_spread(predictions: Distribution) -> jax.Array:
    """The median, and log(Q(Phi(1)) - Q(Phi(-1))) of each forecast, ``[n, 2]``.

    Counts, whose quantiles are whole numbers, and survival curves, whose quantiles may be infinite,
    have the mean and the logarithm of the deviation.
    """
    p = widened(predictions)
    if isinstance(p, (Counts, SurvivalCurve)):
        deviation = jnp.maximum(p.standard_deviation(), jnp.finfo(p.mean().dtype).tiny)
        return jnp.stack([p.mean(), jnp.log(deviation)], axis=1)
    if isinstance(p, KnownQuantiles):
        z, values = known_quantiles(p)
        low, median, high = interpolated(z, values, jnp.array([-1.0, 0.0, 1.0], z.dtype)).T
    else:
        dtype = widest_dtype(*jax.tree.leaves(p))
        low, median, high = jax.vmap(p.quantile)(ndtr(jnp.array([-1.0, 0.0, 1.0], dtype)))
    spread = jnp.maximum(high - low, jnp.finfo(median.dtype).tiny)
    return jnp.stack([median, jnp.log(spread)], axis=1)


def grid_of(features: np.ndarray) -> np.ndarray:
    """Numbers ``[F, Q]`` of evenly spaced ranks among features ``[m, F]``.

    Medians or spreads that differ by rounding only have nearly the rank 1/2, as equal covariates.
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


def ranks_among(xp: ModuleType, grid: ArrayT, features: ArrayT) -> Any:
    """The ranks of features ``[n, F]``, from 0 to 1, linear between those of the grid."""
    ranks = (xp.arange(grid.shape[1], dtype=features.dtype) + 0.5) / grid.shape[1]
    columns = [xp.interp(x, of_grid, ranks) for x, of_grid in zip(features.T, grid, strict=True)]
    # An unknown forecast has no rank.
    return xp.where(xp.isfinite(features), xp.stack(columns, axis=1), xp.nan)


def read_covariates(
    given: CovariatesLike | None, n: int, kept: np.ndarray
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Names of columns, and numbers ``[n, d]``, which must be finite in all rows that count."""
    columns = _columns(given, n)
    if not columns:
        return (), None
    found = np.stack([np.asarray(x, float) for x in columns.values()], axis=1)
    unknown = np.flatnonzero(kept & ~np.isfinite(found).all(axis=1))
    if unknown.size:
        raise ValueError(
            f"covariates must be finite in every row, got {found[unknown[0]].tolist()} in row "
            f"{unknown[0]}."
        )
    return tuple(columns), found


def covariates_of(given: CovariatesLike | None, names: tuple[str, ...], n: int) -> Any:
    """The columns ``[n, d]`` of the fit, in its order."""
    columns = _columns(given, n)
    lacking = [name for name in names if name not in columns]
    if lacking or (is_array(given) and len(columns) != len(names)):
        raise ValueError(
            f"covariates must have the columns of the fit, {', '.join(names)}, got "
            f"{', '.join(columns)}."
        )
    if not names:
        return None
    xp = jnp if is_traced(columns) else np
    return xp.stack([xp.asarray(columns[name]) for name in names], axis=1)


def _columns(given: CovariatesLike | None, n: int) -> dict[str, jax.Array | np.ndarray]:
    columns = {} if given is None else covariate_columns(given, n)
    return {name: _numbers(name, values, n) for name, values in columns.items()}


def _numbers(name: str, values: object, n: int) -> jax.Array | np.ndarray:
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    of_column = f"column {name} of covariates"
    if array.dtype == bool:
        array = array.astype(np.float32)
    check_array(of_column, array, "real")
    check_shapes({of_column: (array, "n")}, {"n": n})
    return array
