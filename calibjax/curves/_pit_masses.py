r"""The PIT of targets of which an interval is known, and how far it varies under the model.

Of a hidden target only an interval of U = F(y) is known, in which U is uniform given it.  With the
cdf C_i(z) of U given what is known of row i, the sums over a part (l, h] of the unit line are

    M = sum_i e_i,    e_i = C_i(h) - C_i(l) - (h - l),    E e_i = 0.

The band is |M| <= c d, where c is the quantile of the largest |M| / d of data sets under H0.  With
the variance v of M, d^2 is max(v, 1): where less than one row is expected, chance moves whole rows.

**It is known when each row would be hidden.**  The data sets are draws that are hidden in the same
way.  If those of row i are hidden where U is in [p, q], whose part in (l, h] has the length s,

    E e_i^2 = (h - l) - s + s^2 / (q - p) - (h - l)^2.

**It is not known.**  The data sets are sum_i xi_i e_i with the observed e_i and random multipliers
xi_i, and v is a sum whose mean is the variance of M, whatever the law of the censoring is
(`variation`).  If the squares e_i^2 sum up to less, by chance, draws are added that have the
variance that is missing: each row is hidden in what is open of it, and from an event on
(`Between.hiding`).
"""

import jax
import jax.numpy as jnp

from calibjax._interval_censored import Between, unit_interval
from calibjax._numbers import dot
from calibjax._rows import Data, clean
from calibjax._struct import PyTree
from calibjax.curves._masses import Masses
from calibjax.curves._pit_parts import Parts, variation
from calibjax.estimators import UniformBinning
from calibjax.resampling import (
    DRAWS_PER_GROUP,
    NullSampler,
    SetSums,
    draw_pits,
    in_passes,
    row_numbers,
    sum_over_rows,
)
from calibjax.scores import PITInterval, drawn_pit_interval, mass_below, pit


def masses_of_parts(
    key: jax.Array,
    data: Data,
    grid: jax.Array,
    parts: Parts,
    n_resamples: int,
    sampler: NullSampler,
) -> Masses:
    """The masses of parts of the unit line beyond their lengths, times n, in all kept rows.

    Args:
        key: a key of `jax.random`.
        data: predictions and their targets, which may be `Between`.
        grid: even points of the unit line, from 0 to 1, ``[g]``.
        parts: parts of the line.
        n_resamples: the number of data sets under H0.
        sampler: of the rows.
    """
    is_coarse = isinstance(data.targets, Between)
    pit_key, band_key = jax.random.split(key)
    draw_key, multiplier_key = jax.random.split(band_key)
    if is_coarse:
        interval = drawn_pit_interval(pit_key, data)
    else:
        interval = PITInterval(*2 * (pit(pit_key, data),))
    data = clean(data)
    weights, dtype = data.weights, data.weights.dtype
    # Masked rows may hold NaN, which weights of 0 do not remove.
    interval = PITInterval(*(jnp.where(weights == 0, 0.5, x) for x in interval))
    sets = sampler.data_sets(draw_key, multiplier_key, data, row_numbers(weights))
    # Nothing is hidden in an interval without length.
    hidden = PITInterval(*(jnp.full(data.n, 0.5, dtype) for _ in range(2)))
    if sets.rows.hidden is not None:
        low, high, *_ = unit_interval(data.predictions, sets.rows.hidden)
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

    def of_groups(groups: jax.Array) -> tuple[jax.Array, tuple[()]]:
        """M of some data sets under H0, ``[draws, k]``."""
        shared = sets.shared(groups)

        def of_rows(chunk: PyTree) -> SetSums:
            (interval, hidden, rows), weights = chunk
            draws = draw_pits(draw_key, rows.numbers, groups, dtype)
            redrawn = _redrawn(draws, hidden, weights, grid)
            xi = sets.factors(rows, shared)
            e = mass_below(interval, grid) - grid[None]
            if xi is None:
                return SetSums(dot(weights[None], e), redrawn)
            factors = xi * weights[:, None]
            of_times = jnp.sum(factors, axis=0) if sets.are_centred else None
            return SetSums(dot(weights[None], e), redrawn, dot(factors.T, e), of_times)

        per_row = 8 * (DRAWS_PER_GROUP + grid.size)
        found = sum_over_rows(of_rows, rows, weights, per_row).transformed(parts.of)
        return found.under_h0(missing[None], total), ()

    sums, _ = in_passes(of_groups, n_resamples)
    distances = jnp.abs(sums) / jnp.where(is_fixed, 1.0, deviation)[None]
    # Rounding leaves a little of what is 0.
    observed, distances = (jnp.where(is_fixed, 0.0 * x, x) for x in (observed, distances))
    return Masses(observed, deviation, distances, total, n_rows)


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
