r"""Sums of residuals in parts of the unit interval or in bins, and how far they may be from 0.

Their mean is 0 if a model is calibrated.  The band is |M| <= c d, where c is the quantile of the
largest |M| / d of data sets under H0.  With the variance v of M, d^2 is max(v, 1): where less than
one row is expected, chance moves whole rows.

**Bins.**  With the residuals r_i = y_i - p_i and weights w_i, M = sum_i w_i r_i of a bin has the
variance sum_i w_i^2 p_i (1 - p_i), if rows are independent.

**Parts of the unit interval.**  Of a hidden target only an interval of U = F(y) is known, in which
U is uniform given it.  With the cdf C_i(z) of U given what is known of row i, the sums over a part
(l, h] of the unit interval are

    M = sum_i e_i,    e_i = C_i(h) - C_i(l) - (h - l),    E e_i = 0.

**It is known when each row would be hidden.**  The data sets are draws that are hidden in the same
way.  If those of row i are hidden where U is in [p, q], whose part in (l, h] has the length s,

    E e_i^2 = (h - l) - s + s^2 / (q - p) - (h - l)^2.

**It is not known.**  The data sets are sum_i xi_i e_i with the observed e_i and random multipliers
xi_i, and v is a sum whose mean is the variance of M, whatever the distribution of the censoring
(`variation`).  If the squares e_i^2 sum up to less, by chance, draws are added that have the
variance that is missing: each row is hidden in what is open of it, and from an event on
(`IntervalCensored.ends_of_draws`).

As a row is seen up to a on the unit interval, the conditional mean of 1{l < U <= h} is a martingale
with steps

    s(u) = -(h - l) / (1 - u) for u <= l,    (1 - h) / (1 - u) for l < u <= h,    0 behind h

where U is u, and the compensators of these.  So if a is independent of U, whatever its
distribution, the mass less its mean h - l has the variance

    E int_0^min(a, U) s(u)^2 du / (1 - u).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import is_traced, on_host, static, struct
from calibjax._data.data import Data, Rows, clean, with_known_weights
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import IntervalCensored, unit_interval
from calibjax._data.padding import padded
from calibjax._loops.random_numbers import folded
from calibjax._numbers.arithmetic import ROUNDINGS_OF_SUMS, dot
from calibjax.estimators import UniformBinning
from calibjax.nulls.engine import Chunk, Found, Statistic, factor_of_drawn, run, sums_of_sets
from calibjax.nulls.ranks import check_resamples, critical_value
from calibjax.nulls.sampler import NullSampler
from calibjax.scores.pit_intervals import PITInterval, mass_below


@struct
class Resamples:
    """The data sets under H0 that a band comes from.

    Args:
        level: the probability of the band.
        number: how many data sets there are, R.
        sampler: how they are made; None for known targets of independent rows that weigh the same,
            of which counts are drawn.
    """

    level: jax.Array
    number: int = static()
    sampler: NullSampler | None = static(None)


def resamples_of(data: Data, confidence_level: float, n_resamples: int) -> tuple[Data, Resamples]:
    """Checked data, padded and without weights that are all equal, and what their band needs."""
    level, n_resamples = check_resamples(confidence_level, n_resamples)
    data = _without_equal_weights(padded(data))
    is_counted = data.is_plain and not data.is_censored
    return data, Resamples(level, n_resamples, None if is_counted else NullSampler.of(data))


def _without_equal_weights(data: Data) -> Data:
    """The same rows without weights, if all weights that are known here are equal or 0."""
    is_known = data.weights is not None and not is_traced((data.weights, data.where))
    if not is_known or data.outcome_weights is not None:
        return data
    kept, weights = data.counted_rows(), on_host(data.weights)
    if not kept.any() or np.ptp(weights[kept]) != 0:
        return data
    return data.replace(weights=None, where=jax.device_put(kept))


@struct
class ResidualSums:
    """Sums M over rows, of k parts of the unit interval or k bins.

    Args:
        observed: of the observed targets, ``[k]``.
        deviation: d, ``[k]``; 0 for what cannot vary.
        distances: |M| in units of the deviation, of data sets under H0, ``[R, k]``.
        total: the weight of the rows, of all parts or of each bin.
        n_rows: the number of rows that count.
    """

    observed: jax.Array
    deviation: jax.Array
    distances: jax.Array
    total: jax.Array
    n_rows: jax.Array

    def __getitem__(self, parts: slice) -> "ResidualSums":
        of_parts = self.observed[parts], self.deviation[parts], self.distances[:, parts]
        return ResidualSums(*of_parts, self.total, self.n_rows)

    def alone(self, level: jax.Array) -> jax.Array:
        """How far M may be from 0 in each part by itself, ``[k]``."""
        return self._largest(critical_value(self.distances.T, level))

    def together(self, level: jax.Array) -> jax.Array:
        """How far M may be from 0 in all parts at once, ``[k]``."""
        return self._largest(critical_value(jnp.max(self.distances, axis=1), level))

    def _largest(self, critical: jax.Array) -> jax.Array:
        # Equal data sets may differ by rounding, and must be within.
        rounding = ROUNDINGS_OF_SUMS * jnp.finfo(self.deviation.dtype).eps
        return critical * self.deviation * (1 + rounding)


def _in_units_of_deviations(
    found: Found, known: jax.Array, least: jax.Array, can_vary: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The deviations d, from variances under the model ``[k]`` and the least d^2, and distances."""
    variance = found.variance(known, found.observed, found.draws)
    deviation = jnp.where(can_vary, jnp.sqrt(jnp.maximum(variance, least)), 0.0)
    return deviation, jnp.abs(found.draws) / jnp.where(can_vary, deviation, 1.0)[None]


@struct
class _SumsInBins(Statistic):
    """The sums of residuals in bins.

    Args:
        others: the bin of each row, and the variance of its residual under the model.
        n_bins: the number of bins.
        residuals_of: the residuals ``[n, D]`` of targets ``[n, D]``.
    """

    others: tuple[jax.Array, jax.Array]
    n_bins: int = static()
    residuals_of: Callable[[Distribution, jax.Array], jax.Array] = static()

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(self.n_bins, 1)]

    def moments(self, chunk: Chunk) -> jax.Array:
        """Sums ``[b, 5]`` of w, 1, w^2, and w^2 times squares and variances."""
        (_, variance), w = chunk.others, chunk.weights
        squares = jnp.square(self.residuals_of(chunk.rows.predictions, chunk.rows.targets[:, None]))
        columns = [w * w, w * w * squares[:, 0], w * w * variance]
        columns = [chunk.observed_weights, (w != 0).astype(w.dtype), *columns]
        return self._in_bins(chunk, jnp.stack(columns, axis=1))

    def missing(self, moments: jax.Array) -> list[jax.Array]:
        of_observed, variance = moments.T[3:, :, None, None]
        return [factor_of_drawn(of_observed, variance, variance)]

    def sums(self, chunk: Chunk) -> jax.Array:
        residuals = self.residuals_of(chunk.rows.predictions, chunk.targets())
        residuals = chunk.weights[:, None] * chunk.weighed(residuals[..., None])[..., 0]
        sums = self._in_bins(chunk, residuals)
        if chunk.xi is not None:
            # In one array XLA would choose for each number between both, and draw signs slowly.
            multiplied = self._in_bins(chunk, chunk.xi * residuals[:, :1])
            sums = jnp.concatenate([sums, multiplied], axis=1)
        return sums[..., None]

    def values(
        self, sums: jax.Array, moments: Any, missing: list[jax.Array]
    ) -> tuple[jax.Array, tuple[()]]:
        return sums_of_sets(sums, missing)[..., 0].T, ()

    def _in_bins(self, chunk: Chunk, values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, chunk.others[0], self.n_bins)


def sums_in_bins(
    key: jax.Array,
    data: Rows,
    bins: jax.Array,
    n_bins: int,
    resamples: Resamples,
    residuals_of: Callable[[Distribution, jax.Array], jax.Array],
    variance: jax.Array,
) -> ResidualSums:
    """The sums of residuals in the bin ``[n]`` of each row of clean data.

    Rows of the bin `n_bins` do not count.  Targets ``[n, D]`` have residuals ``[n, D]``, whose
    variance under the model is ``[n]``.
    """
    data = with_known_weights(data)
    statistic = _SumsInBins((bins, variance), n_bins, residuals_of)
    sampler = resamples.sampler or NullSampler()
    [found] = run([statistic], folded(key, 0), data, resamples.number, sampler)
    size, count, of_ones, _, known = found.moments.T
    least = of_ones / jnp.maximum(count, 1)
    deviation, distances = _in_units_of_deviations(found, known, least, count > 0)
    return ResidualSums(found.observed, deviation, distances, size, count)


class Parts(NamedTuple):
    """Parts (l, h] of the unit interval, as numbers of points of a grid, ``[k]`` each."""

    first: np.ndarray
    last: np.ndarray

    def of(self, below: jax.Array) -> jax.Array:
        """What is in the parts, from what is below each point of the grid ``[…, g]``."""
        first, last = (below.at[..., k].get(mode="promise_in_bounds") for k in self)
        return last - first


def sums_in_parts(
    key: jax.Array,
    data: Data,
    pits: jax.Array,
    grid: jax.Array,
    parts: Parts,
    resamples: Resamples,
) -> ResidualSums:
    """The sums over all kept rows of the masses in parts of the unit interval, less their lengths.

    Args:
        key: a key of `jax.random`.
        data: predictions and their targets, which may be `IntervalCensored`.
        pits: U of each target ``[n]``, or the ends of where it lies ``[2, n]``.
        grid: even points of the unit interval, from 0 to 1, ``[g]``.
        parts: parts of the line.
        resamples: the data sets under H0.
    """
    interval = PITInterval(*jnp.broadcast_to(pits, (2, data.n)))
    rows, sampler = clean(data), resamples.sampler or NullSampler()
    weights, dtype = rows.weights, rows.weights.dtype
    # Masked rows may hold NaN, which weights of 0 do not remove.
    interval = PITInterval(*(jnp.where(weights == 0, 0.5, x) for x in interval))
    statistic = _SumsInParts(interval, grid.astype(dtype), parts)
    [found] = run([statistic], folded(key, 0), rows, resamples.number, sampler)
    n_rows, total = jnp.sum(weights != 0, dtype=dtype), jnp.sum(weights)
    _, _, variance, of_ones = found.moments
    # The whole line, and nothing of it, hold all rows, and none.
    is_fixed = (statistic.length <= 0) | (statistic.length >= 1)
    deviation, distances = _in_units_of_deviations(found, variance, of_ones / n_rows, ~is_fixed)
    # Rounding leaves a little of what is 0.
    observed, distances = (jnp.where(is_fixed, 0.0 * x, x) for x in (found.observed, distances))
    return ResidualSums(observed, deviation, distances, total, n_rows)


@struct
class _SumsInParts(Statistic):
    """The sums M in parts of the unit interval.

    Args:
        others: where U of the observed target lies.
        grid: even points of the unit interval, from 0 to 1, ``[g]``.
        parts: parts of the line.
    """

    others: PITInterval
    grid: jax.Array
    parts: Parts

    @property
    def length(self) -> jax.Array:
        """h - l of each part, ``[k]``."""
        return self.parts.of(self.grid)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        return [(1, self.grid.size)]

    def moments(self, chunk: Chunk) -> jax.Array:
        """Sums of w^2 times e_i^2, their expectation in a draw, the variance and 1, ``[4, k]``."""
        length = self.length
        e = self.parts.of(mass_below(chunk.others, self.grid)) - length[None]
        variance = of_draws = jnp.broadcast_to(length - jnp.square(length), e.shape)
        if chunk.rows.hidden is not None:
            hidden = _where_hidden(chunk.rows.predictions, chunk.rows.hidden)
            share = self.parts.of(mass_below(hidden, self.grid))
            width = (hidden.high - hidden.low)[:, None]
            variance = of_draws = of_draws - share * width * (1 - share)
            if chunk.sets.turns is not None:
                variance = variation(hidden, self.grid, self.parts, of_draws)
        terms = jnp.stack([jnp.square(e), of_draws, variance, jnp.ones_like(e)])
        return dot(jnp.square(chunk.weights), terms)

    def missing(self, moments: jax.Array) -> list[jax.Array]:
        squares, of_draws, variance, _ = moments[:, None, None]
        return [factor_of_drawn(squares, variance, of_draws)]

    def sums(self, chunk: Chunk) -> jax.Array:
        """The sums of the mass below each point of the grid, ``[1, D, g]``."""
        weights, xi = chunk.weights[:, None], chunk.xi
        e = mass_below(chunk.others, self.grid) - self.grid[None]
        found = [dot(weights.T, e), _redrawn(chunk, self.grid)]
        if xi is not None:
            found.append(dot((xi * weights).T, e))
        return jnp.concatenate(found)[None]

    def numbers_of_row(self, shapes: list[tuple[int, int, int]], redraws: bool) -> int:
        return 8 * (shapes[0][1] + self.grid.size)

    def values(
        self, sums: jax.Array, moments: Any, missing: list[jax.Array]
    ) -> tuple[jax.Array, tuple[()]]:
        return sums_of_sets(self.parts.of(sums), missing)[0], ()


def _where_hidden(predictions: Distribution, hidden: IntervalCensored) -> PITInterval:
    """Where U of a draw would be hidden; nothing is hidden in an interval without length."""
    low, high, *_ = unit_interval(predictions, hidden)
    return PITInterval(low, jnp.where(hidden.is_exact(), low, high))


def _redrawn(chunk: Chunk, grid: jax.Array) -> jax.Array:
    """The sums of C_i(z) - z of draws that are hidden as the rows are, ``[draws, g]``."""
    u, weights = chunk.uniform_draws(), chunk.weights[:, None]
    n_cells, shown = grid.size - 1, jnp.broadcast_to(weights, u.shape)
    spread: jax.Array | float = 0.0
    # One number for each index: XLA computes a pair of them without vectors.
    cells = UniformBinning(n_cells).intervals(u) + n_cells * jnp.arange(u.shape[1])[None]
    if chunk.rows.hidden is not None:
        hidden = _where_hidden(chunk.rows.predictions, chunk.rows.hidden)
        is_hidden = (hidden.low[:, None] < u) & (u <= hidden.high[:, None])
        spread = dot(jnp.where(is_hidden, weights, 0.0).T, mass_below(hidden, grid) - grid[None])
        shown = jnp.where(is_hidden, 0.0, weights)
    counts = jnp.zeros(u.shape[1] * n_cells, u.dtype).at[cells].add(shown, mode="promise_in_bounds")
    below = jnp.pad(jnp.cumsum(counts.reshape(-1, n_cells), axis=1), ((0, 0), (1, 0)))
    return spread + below - jnp.sum(shown, axis=0)[:, None] * grid[None]


def variation(hidden: PITInterval, grid: jax.Array, parts: Parts, of_draws: jax.Array) -> jax.Array:
    """The integrals for rows that are seen up to the interval where they are hidden, ``[n, k]``.

    Rows that are censored on the left are mirrored.  A row that is hidden between two numbers has
    the variance of its draws.
    """
    low, high = (grid[x][None] for x in parts)
    p, q = hidden.low[:, None], hidden.high[:, None]
    from_left, from_right = _steps(p, low, high), _steps(1 - q, 1 - high, 1 - low)
    return jnp.where(q >= 1, from_left, jnp.where(p <= 0, from_right, of_draws))


def _steps(a: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """The integral of s(u)^2 / (1 - u) up to a."""

    def half_square(numerator: jax.Array, u: jax.Array) -> jax.Array:
        return jnp.square(numerator / jnp.where(u < 1, 1 - u, 1.0)) / 2

    before, within = jnp.minimum(a, low), jnp.clip(a, low, high)
    of_before = half_square(high - low, before) - jnp.square(high - low) / 2
    return of_before + half_square(1 - high, within) - half_square(1 - high, low)
