"""Counts after a map of the unit line: a table of probabilities.

A table is a law that every function takes, whatever the map is.  Counts above the last one of the
sums of a family go to its last class: they have a probability of less than 4e-18 before, or else
the table is NaN.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from calibjax._numbers import normal_score
from calibjax._struct import widened
from calibjax.distributions import Counts, Ordinal
from calibjax.recalibration._unit_line._interpolated import interpolated


def mended_counts(predictions: Counts, scores: jax.Array, moved: jax.Array) -> Ordinal:
    """P(Y <= k) = G(F(k)) for the counts k = 0 … max_count, of which the last one has the rest.

    Args:
        predictions: counts with a max_count.
        scores: normal scores of levels, ``[K]``.
        moved: normal scores of G there, ``[K]``, or ``[n, K]`` of rows.
    """
    assert predictions.max_count is not None  # the caller has looked
    counts = jnp.arange(predictions.max_count + 1, dtype=jnp.int32)
    p = jax.vmap(lambda one: jax.vmap(one.probability)(counts))(widened(predictions))
    below = jnp.cumsum(p, axis=1)[:, :-1]
    above = jnp.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    z = interpolated(scores, moved, normal_score(jnp.minimum(below, 1.0), above))
    # The thinner tail has all digits of a difference.
    least = jnp.finfo(p.dtype).tiny
    lower = jnp.where(below <= least, 0.0, ndtr(z))
    upper = jnp.where(above <= least, 0.0, ndtr(-z))
    ones, zeros = jnp.ones_like(p[:, :1]), jnp.zeros_like(p[:, :1])
    lower = jnp.concatenate([zeros, lower, ones], axis=1)
    upper = jnp.concatenate([ones, upper, zeros], axis=1)
    of_lower, of_upper = jnp.diff(lower, axis=1), -jnp.diff(upper, axis=1)
    q = jnp.maximum(jnp.where(lower[:, 1:] < 0.5, of_lower, of_upper), 0.0)
    q = q / jnp.sum(q, axis=1, keepdims=True)
    return Ordinal(jnp.where(are_complete(predictions)[:, None], q, jnp.nan))


def are_complete(predictions: Counts) -> jax.Array:
    """Whether counts above max_count are improbable, ``[n]``."""
    return jax.vmap(lambda one: one.is_complete())(widened(predictions))
