"""One distribution of S samples with weights of any sum: what its sorted samples say of it."""

import jax
import jax.numpy as jnp

from calibjax._numbers.unit_interval import falls_short


def shares(
    weights: jax.Array, samples: jax.Array, target: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P(Z < target), P(Z <= target) and P(Z > target), from S weights and samples."""
    total = jnp.sum(weights)
    below = jnp.sum(jnp.where(samples < target, weights, 0.0))
    up_to = jnp.sum(jnp.where(samples <= target, weights, 0.0))
    above = jnp.sum(jnp.where(samples > target, weights, 0.0))
    return below / total, up_to / total, above / total


def quantile(weights: jax.Array, samples: jax.Array, level: jax.Array) -> jax.Array:
    """The smallest sample z of positive weight with P(Z <= z) >= level."""
    order = jnp.argsort(samples)
    sums = jnp.cumsum(weights[order])
    too_small = falls_short(sums, level) | (sums <= 0)
    found = samples[order][jnp.sum(too_small)]
    return jnp.where(jnp.isnan(level), jnp.nan, found)


def crps(weights: jax.Array, samples: jax.Array, target: jax.Array) -> jax.Array:
    """The integral of (F - 1{target <= x})^2 over x, in O(S log S); all its terms are positive."""
    values = jnp.append(samples, target)
    order = jnp.argsort(values)
    below, above = _both_tails(jnp.append(weights, 0.0)[order])
    is_after = jnp.cumsum(order == samples.size) > 0
    tail = jnp.where(is_after, above, below)[:-1]
    return jnp.sum(jnp.diff(values[order]) * jnp.square(tail))


def half_mean_difference(weights: jax.Array, samples: jax.Array) -> jax.Array:
    """E|Z - Z'| / 2 for independent Z and Z': the integral of F (1 - F), in O(S log S)."""
    order = jnp.argsort(samples)
    below, above = _both_tails(weights[order])
    return jnp.sum(jnp.diff(samples[order]) * (below * above)[:-1])


def _both_tails(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The share of the weights up to each, and the share of those behind it."""
    total = jnp.sum(weights)
    behind = jnp.append(jnp.cumsum(weights[:0:-1])[::-1], 0.0)
    return jnp.cumsum(weights) / total, behind / total
