"""The cdf of a mixture, and its inverse."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import (
    integer_or_invalid,
    quantile_from_cdf,
    smallest_count_with,
    with_levels,
)
from calibjax._struct import widened


def cdf(p: Any, targets: jax.Array) -> jax.Array:
    """sum_k w_k F_k(targets[i]) / sum_k w_k, ``[n]``."""
    return average(p, targets, lambda components, y: components.cdf(y))


def cdf_jump(p: Any, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same sums of both limits of the components' cdfs."""
    before = average(p, targets, lambda components, y: components.cdf_jump(y)[0])
    return before, cdf(p, targets)


def quantile(p: Any, level: jax.Array) -> jax.Array:
    """The smallest numbers at which the cdf is at least the level, ``[n]``.

    At the levels 0 and 1 they are the ends of the supports of components with a positive weight.
    """
    p, level = with_levels(p, level)
    inside = (level > 0) & (level < 1)
    inner_level = jnp.where(inside, level, 0.5)
    ends = _ends_of_support(p, level)
    if p.target_kind == "real":
        found = jnp.where(inside, quantile_from_cdf(p, inner_level), ends)
        return jnp.where(jnp.isnan(level), jnp.nan, found)
    found = smallest_count_with(lambda y: p.cdf(y) >= inner_level, level)
    return integer_or_invalid(level, jnp.where(inside, found, ends))


def average(
    p: Any, targets: jax.Array, function: Callable[[Distribution, jax.Array], jax.Array]
) -> jax.Array:
    """The weighted mean of a function of the components and their targets, ``[n]``."""
    p = widened(p)
    weights = _weights(p)
    repeated = jnp.repeat(targets, weights.shape[1], axis=0)
    values = p._by_component(function(p._flat_components(), repeated))
    return jnp.sum(weights * values, axis=1) / jnp.sum(weights, axis=1)


def _weights(p: Any) -> jax.Array:
    """The weights of the components, ``[n, K]``."""
    return jax.vmap(lambda mixture: mixture.probabilities())(p)


def _ends_of_support(p: Any, level: jax.Array) -> jax.Array:
    """The largest possible target where the level is 1, else the smallest one."""
    weights = _weights(p)
    at_end = jnp.where(level >= 1, 1.0, 0.0).astype(weights.dtype)
    ends = p._flat_components().quantile(jnp.repeat(at_end, weights.shape[1]))
    ends = jax.lax.stop_gradient(p._by_component(ends))
    likeliest = jnp.take_along_axis(ends, jnp.argmax(weights, axis=1)[:, None], axis=1)
    ends = jnp.where(weights > 0, ends, likeliest)
    return jnp.where(level >= 1, jnp.max(ends, axis=1), jnp.min(ends, axis=1))
