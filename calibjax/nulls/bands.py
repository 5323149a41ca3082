"""How far frequencies are from probabilities, and the band of those that are not too far.

The deviance 2 n KL(k / n | p), for k events of n, is nearly chi-squared under the model, whether
events are rare or not.  The distance of a bin b is it, times the ratio of the binomial variance to
the variance of the sum of the bin's events, whose probabilities differ a little:

    T_b(k) = 2 n_b KL(k / n_b | p_b) n_b p_b (1 - p_b) / v_b,    v_b = sum_{i in b} p_i (1 - p_i).

Calibration does not rest on this distribution.  T_b is a fixed function of the targets, given the
predictions, so that the rank of the observed distance among the distances of redrawn targets is
exact.  A band is {k: T_b(k) <= c}, where c is the critical distance from the redrawn targets.

The PIT of a calibrated model is uniform, whatever its family, so that the bands of its curves
depend on n alone: they are those of the counts of n independent uniform numbers in equal cells.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._base.sharding import as_varying
from calibjax._base.struct import struct
from calibjax._numbers.arithmetic import ROUNDINGS_OF_SUMS, fast_where
from calibjax._numbers.derivatives import absolute
from calibjax._numbers.special_functions import log_quotient
from calibjax._numbers.unit_interval import smallest_between
from calibjax.nulls.ranks import critical_value


@struct
class Bins:
    """Bins of binary predictions, without their targets.

    Args:
        mean: the mean probability of an event, ``[b]``.
        complement: the mean probability of no event, ``[b]``, with all its digits.
        variance: the sum of p (1 - p), ``[b]``.
        size: the number of rows, ``[b]``.
    """

    mean: jax.Array
    complement: jax.Array
    variance: jax.Array
    size: jax.Array

    def distances(self, events: jax.Array) -> jax.Array:
        """T_b of numbers of events ``[b]``; infinite where they cannot happen, 0 if empty."""
        dtype = self.mean.dtype
        size = jnp.maximum(self.size, 1).astype(dtype)
        happened = events.astype(dtype)
        counts = jnp.stack([happened, (self.size - events).astype(dtype)])
        mean = size * self.mean
        expected = jnp.stack([mean, size * self.complement])
        deviance = 2 * jnp.sum(_times_log_ratio(counts, expected), axis=0)
        certain = self.variance <= 0
        scale = mean * self.complement / fast_where(certain, 1.0, self.variance)
        impossible = certain & (happened != lax.round(mean, lax.RoundingMethod.TO_NEAREST_EVEN))
        distances = fast_where(certain, fast_where(impossible, jnp.inf, 0.0), scale * deviance)
        # Rounding makes a deviance of 0 negative.
        return fast_where(self.size > 0, jnp.maximum(distances, 0.0), 0.0)

    def critical(self, redrawn: jax.Array, level: jax.Array) -> jax.Array:
        """The critical value of the largest distance, from events ``[R, b]`` of R data sets."""
        return critical_value(jnp.max(jax.vmap(self.distances)(redrawn), axis=1), level)

    def band(self, critical: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The lowest and the highest frequency whose distance is at most `critical`, ``[b]``.

        They are fractions of n_b, and the mean probability if that is beyond them, rounded away
        from each other, within [0, 1]: compilers compute the same fraction in more than one way.
        A frequency, as `fractions` computes it, is outside exactly if its distance is larger.
        Empty bins have NaN.
        """
        size = jnp.maximum(self.size, 1)
        n = size.astype(self.mean.dtype)
        below = jnp.floor(n * self.mean).astype(jnp.int32)
        most = critical * (1 + ROUNDINGS_OF_SUMS * jnp.finfo(self.mean.dtype).eps)

        def is_outside(events: jax.Array) -> jax.Array:
            return (events < 0) | (events > size) | ~(self.distances(events) <= most)

        above = smallest_between(below + 1, size + 1, is_outside, 32)
        first = 1 - smallest_between(-below, jnp.ones_like(below), lambda k: is_outside(-k), 32)
        low = jnp.minimum(first.astype(n.dtype) / n, self.mean)
        high = jnp.maximum((above - 1).astype(n.dtype) / n, self.mean)
        rounding = 2 * jnp.finfo(self.mean.dtype).eps
        low = jnp.where(low < 1, jnp.maximum(low - rounding, 0.0), 1.0)
        high = jnp.where(high > 0, jnp.minimum(high + rounding, 1.0), 0.0)
        bad = (self.size == 0) | jnp.isnan(critical)
        return jnp.where(bad, jnp.nan, low), jnp.where(bad, jnp.nan, high)


def is_beyond(score: jax.Array, critical: jax.Array) -> jax.Array:
    """Whether scores are farther from 0 than the critical one; equal scores are not."""
    return absolute(score) > critical * (1 + ROUNDINGS_OF_SUMS * jnp.finfo(score.dtype).eps)


def fractions(events: jax.Array, size: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """events / size, exactly 1 for all events, which compilers may round; 0 if size is 0."""
    parts = events.astype(dtype) / jnp.maximum(size, 1).astype(dtype)
    return jnp.where((events == size) & (size > 0), 1.0, parts)


def _times_log_ratio(count: jax.Array, expected: jax.Array) -> jax.Array:
    """k log(k / e), which is 0 for k = 0 and infinite for e = 0 < k."""
    some, possible = count > 0, expected > 0
    ratio = log_quotient(fast_where(some, count, 1.0), fast_where(possible, expected, 1.0))
    return fast_where(some, fast_where(possible, count * ratio, jnp.inf), 0.0)


def redrawn_uniform_counts(
    key: jax.Array,
    n: jax.Array,
    n_cells: jax.Array | int,
    most: int,
    n_resamples: int,
    dtype: DTypeLike,
) -> jax.Array:
    """Counts of n uniform numbers in equal cells, ``[n_resamples, most]``; draw r depends only on
    (key, r).

    Cells behind the first `n_cells` hold nothing.  Each cell takes a binomial part of the numbers
    that the cells before it have left, so that the time does not depend on n.
    """

    def draw(number: jax.Array) -> jax.Array:
        def next_cell(
            cell: jax.Array, state: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            left, counts = state
            share = 1 / (n_cells - cell).astype(dtype)
            cell_key = jax.random.fold_in(draw_key, cell)
            count = jax.random.binomial(cell_key, left.astype(dtype), share, dtype=dtype)
            count = count.astype(jnp.int32)
            return left - count, lax.dynamic_update_index_in_dim(counts, count, cell, 0)

        draw_key = jax.random.fold_in(key, number)
        start = as_varying((n, jnp.zeros(most, jnp.int32)), n)
        left, counts = lax.fori_loop(0, n_cells - 1, next_cell, start)
        return lax.dynamic_update_index_in_dim(counts, left, n_cells - 1, 0)

    return jax.vmap(draw)(jnp.arange(n_resamples, dtype=jnp.int32))


def distribution_of_cells(n: jax.Array, cells: jax.Array, n_cells: int, dtype: DTypeLike) -> Bins:
    """Bins whose events are how many of n uniform numbers are in `cells` of all `n_cells`."""
    inside, outside = (x.astype(dtype) / n_cells for x in (cells, n_cells - cells))
    size = jnp.full(cells.shape, n, jnp.int32)
    return Bins(inside, outside, size.astype(dtype) * inside * outside, size)
