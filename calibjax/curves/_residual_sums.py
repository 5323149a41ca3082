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
xi_i, and v is a sum whose mean is the variance of M, whatever the law of the censoring is
(`variation`).  If the squares e_i^2 sum up to less, by chance, draws are added that have the
variance that is missing: each row is hidden in what is open of it, and from an event on
(`Between.hiding`).

As a row is seen up to a on the unit interval, the conditional mean of 1{l < U <= h} is a martingale
with steps

    s(u) = -(h - l) / (1 - u) for u <= l,    (1 - h) / (1 - u) for l < u <= h,    0 behind h

where U is u, and the compensators of these.  So whatever the law of a is, if it is independent of
U, the mass less its mean h - l has the variance

    E int_0^min(a, U) s(u)^2 du / (1 - u).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._base.struct import PyTree, is_traced, on_host, static, struct
from calibjax._data.data import Data, Rows, clean
from calibjax._data.distribution import Distribution
from calibjax._data.interval_censored import Between, unit_interval
from calibjax._data.padding import padded
from calibjax._numbers.arithmetic import dot
from calibjax.estimators import UniformBinning
from calibjax.nulls.draws import DRAWS_PER_BATCH, draw_pits, row_numbers
from calibjax.nulls.ranks import check_resamples, critical_value
from calibjax.nulls.sampler import (
    NullSampler,
    SampledRows,
    SetSums,
    in_passes,
    sum_over_rows,
    variance_deficit,
)
from calibjax.scores import PITInterval, drawn_pit_interval, mass_below, pit

# In units of the precision: by how much equal distances may differ between two programs.
_ROUNDING = 256


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
    is_counted = data.is_plain and not isinstance(data.targets, Between)
    return data, Resamples(level, n_resamples, None if is_counted else NullSampler.of(data))


def _without_equal_weights(data: Data) -> Data:
    """The same rows without weights, if all weights that are known here are equal or 0."""
    if data.weights is None or is_traced((data.weights, data.where)):
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
        rounding = _ROUNDING * jnp.finfo(self.deviation.dtype).eps
        return critical * self.deviation * (1 + rounding)


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
    draw_key, multiplier_key = jax.random.split(key)
    weights, sampler = data.weights, resamples.sampler or NullSampler()
    sets = sampler.data_sets(draw_key, multiplier_key, data, row_numbers(weights))

    def in_bins(bins: jax.Array, x: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(x, bins, n_bins)

    def residuals(rows: SampledRows, batches: jax.Array) -> jax.Array:
        return residuals_of(rows.predictions, sets.targets(rows, batches))[..., None]

    observed = residuals_of(data.predictions, data.targets[:, None])[:, 0]
    squared, w = jnp.square(observed), jnp.square(weights)
    kept = (weights != 0).astype(weights.dtype)
    columns = jnp.stack([weights, kept, w, w * squared, w * variance], axis=1)
    size, count, of_ones, of_observed, variance = in_bins(bins, columns).T
    least = of_ones / jnp.maximum(count, 1)
    deviation = jnp.where(count > 0, jnp.sqrt(jnp.maximum(variance, least)), 0.0)
    missing = variance_deficit(of_observed, variance)[:, None, None]

    def of_batches(batches: jax.Array) -> tuple[jax.Array, jax.Array]:
        """M of some data sets under H0, ``[draws, b]``, and of the observed targets, ``[b]``."""
        found = sets.sums(residuals, in_bins, bins, weights, batches, DRAWS_PER_BATCH)
        if found.factors is not None:  # All bins share the mean over times.
            found = found._replace(factors=jnp.sum(found.factors, axis=0, keepdims=True))
        return found.under_h0(missing, jnp.sum(weights))[..., 0].T, found.observed[:, 0, 0]

    sums, observed = in_passes(of_batches, resamples.number)
    distances = jnp.abs(sums) / jnp.where(deviation > 0, deviation, 1.0)[None]
    return ResidualSums(observed, deviation, distances, size, count)


class Parts(NamedTuple):
    """Parts (l, h] of the unit interval, as numbers of points of a grid, ``[k]`` each."""

    first: jax.Array
    last: jax.Array

    def of(self, below: jax.Array) -> jax.Array:
        """What is in the parts, from what is below each point of the grid ``[…, g]``."""
        return below[..., self.last] - below[..., self.first]


def sums_in_parts(
    key: jax.Array, data: Data, grid: jax.Array, parts: Parts, resamples: Resamples
) -> ResidualSums:
    """The sums over all kept rows of the masses in parts of the unit interval, less their lengths.

    Args:
        key: a key of `jax.random`.
        data: predictions and their targets, which may be `Between`.
        grid: even points of the unit interval, from 0 to 1, ``[g]``.
        parts: parts of the line.
        resamples: the data sets under H0.
    """
    is_coarse, sampler = isinstance(data.targets, Between), resamples.sampler or NullSampler()
    pit_key, band_key = jax.random.split(key)
    draw_key, multiplier_key = jax.random.split(band_key)
    if is_coarse:
        interval = drawn_pit_interval(pit_key, data)
    else:
        interval = PITInterval(*2 * (pit(pit_key, data),))
    cleaned = clean(data)
    weights, dtype = cleaned.weights, cleaned.weights.dtype
    # Masked rows may hold NaN, which weights of 0 do not remove.
    interval = PITInterval(*(jnp.where(weights == 0, 0.5, x) for x in interval))
    sets = sampler.data_sets(draw_key, multiplier_key, cleaned, row_numbers(weights))
    # Nothing is hidden in an interval without length.
    hidden = PITInterval(*(jnp.full(cleaned.n, 0.5, dtype) for _ in range(2)))
    if sets.rows.hidden is not None:
        low, high, *_ = unit_interval(cleaned.predictions, sets.rows.hidden)
        hidden = PITInterval(low, jnp.where(sets.rows.hidden.is_exact(), low, high))
    rows = interval, hidden, sets.rows
    grid = grid.astype(dtype)
    length = parts.of(grid)

    def moments(chunk: PyTree) -> jax.Array:
        """M, the sum of e_i^2, and their expectation, ``[3, k]``."""
        (interval, hidden, _), weights = chunk
        e = parts.of(mass_below(interval, grid)) - length[None]
        share = parts.of(mass_below(hidden, grid))
        width = (hidden.high - hidden.low)[:, None]
        of_draws = (length - jnp.square(length))[None] - share * width * (1 - share)
        variance = of_draws if sampler.redraws else variation(hidden, grid, parts, of_draws)
        terms = jnp.stack([e, jnp.square(e), of_draws, variance, jnp.ones_like(e)])
        powers = jnp.stack([weights] + 4 * [jnp.square(weights)])
        return jnp.sum(powers[..., None] * terms, axis=1)

    sums = sum_over_rows(moments, rows, weights, 16 * length.size)
    n_rows, total = jnp.sum(weights != 0, dtype=dtype), jnp.sum(weights)
    observed, squares, of_draws, variance, of_ones = sums
    # The whole line, and nothing of it, hold all rows, and none.
    is_fixed = (length <= 0) | (length >= 1)
    deviation = jnp.where(is_fixed, 0.0, jnp.sqrt(jnp.maximum(variance, of_ones / n_rows)))
    can_vary = of_draws > 0
    share = jnp.maximum(variance - squares, 0.0) / jnp.where(can_vary, of_draws, 1.0)
    missing = jnp.sqrt(jnp.where(can_vary, share, 0.0))

    def of_batches(batches: jax.Array) -> tuple[jax.Array, tuple[()]]:
        """M of some data sets under H0, ``[draws, k]``."""
        shared = sets.shared(batches)

        def of_rows(chunk: PyTree) -> SetSums:
            (interval, hidden, rows), weights = chunk
            draws = draw_pits(draw_key, rows.numbers, batches, dtype)
            redrawn = _redrawn(draws, hidden, weights, grid)
            xi = sets.factors(rows, shared)
            e = mass_below(interval, grid) - grid[None]
            if xi is None:
                return SetSums(dot(weights[None], e), redrawn)
            factors = xi * weights[:, None]
            of_times = jnp.sum(factors, axis=0) if sets.are_centred else None
            return SetSums(dot(weights[None], e), redrawn, dot(factors.T, e), of_times)

        per_row = 8 * (DRAWS_PER_BATCH + grid.size)
        found = sum_over_rows(of_rows, rows, weights, per_row).transformed(parts.of)
        return found.under_h0(missing[None], total), ()

    sums, _ = in_passes(of_batches, resamples.number)
    distances = jnp.abs(sums) / jnp.where(is_fixed, 1.0, deviation)[None]
    # Rounding leaves a little of what is 0.
    observed, distances = (jnp.where(is_fixed, 0.0 * x, x) for x in (observed, distances))
    return ResidualSums(observed, deviation, distances, total, n_rows)


def _redrawn(
    draws: tuple[jax.Array, jax.Array], hidden: PITInterval, weights: jax.Array, grid: jax.Array
) -> jax.Array:
    """The sums of C_i(z) - z of draws that are hidden as the rows are, ``[draws, g]``."""
    u, _ = draws
    is_hidden = (hidden.low[:, None] < u) & (u <= hidden.high[:, None])
    of_hidden = jnp.where(is_hidden, weights[:, None], 0.0)
    spread = dot(of_hidden.T, mass_below(hidden, grid) - grid[None])
    n_cells = grid.size - 1
    cells = jnp.where(is_hidden, n_cells, UniformBinning(n_cells).intervals(u))
    shown = jnp.where(is_hidden, 0.0, weights[:, None])
    sets = jnp.arange(u.shape[1], dtype=jnp.int32)[None]
    counts = jnp.zeros((u.shape[1], n_cells), u.dtype).at[sets, cells].add(shown, mode="drop")
    below = jnp.pad(jnp.cumsum(counts, axis=1), ((0, 0), (1, 0)))
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
