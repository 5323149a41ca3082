"""Sums over the components of mixtures, and over pairs of them: the cdf, quantiles, the CRPS."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._numbers import (
    integer_or_invalid,
    quantile_from_cdf,
    smallest_count_with,
    with_levels,
)
from calibjax._sharding import as_varying
from calibjax._struct import PyTree, widened

if TYPE_CHECKING:
    from calibjax.distributions._mixture._mixture import Mixture


def sum_over_pairs(
    p: "Mixture",
    q: "Mixture",
    function: Callable[[Distribution, Distribution], jax.Array],
    captured: PyTree,
) -> jax.Array:
    """sum_kl p.weights[k] q.weights[l] function(p.components[k], q.components[l]).

    `captured` holds the arrays that the function uses besides its arguments.  The sum is a loop
    over pairs of components, and the derivative evaluates each pair again instead of storing it.
    """
    ours, theirs = (p.probabilities(), p.components), (q.probabilities(), q.components)

    @jax.checkpoint
    def term(left, right):
        return left[0] * right[0] * function(left[1], right[1])

    def over_left(total, left):
        def over_right(total, right):
            return total + term(left, right), None

        return lax.scan(over_right, total, theirs)[0], None

    zero = as_varying(jnp.zeros((), ours[0].dtype), (ours, theirs, captured))
    return lax.scan(over_left, zero, ours)[0]


def cdf(p: "Mixture", targets: jax.Array) -> jax.Array:
    """sum_k w_k F_k(targets[i]) / sum_k w_k, ``[n]``."""
    return average(p, targets, lambda components, y: components.cdf(y))


def survival(p: "Mixture", targets: jax.Array) -> jax.Array:
    """sum_k w_k (1 - F_k(targets[i])) / sum_k w_k, ``[n]``."""
    return average(p, targets, lambda components, y: components.survival(y))


def cdf_jump(p: "Mixture", targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same sums of both limits of the components' cdfs."""
    before = average(p, targets, lambda components, y: components.cdf_jump(y)[0])
    return before, average(p, targets, lambda components, y: components.cdf_jump(y)[1])


def quantile(p: "Mixture", level: jax.Array) -> jax.Array:
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
    p: "Mixture", targets: jax.Array, function: Callable[[Distribution, jax.Array], jax.Array]
) -> jax.Array:
    """The weighted mean of a function of the components and their targets, ``[n]``."""
    p = widened(p)
    weights = _weights(p)
    repeated = jnp.repeat(targets, weights.shape[1], axis=0)
    values = p._by_component(function(p._flat_components(), repeated))
    return jnp.sum(weights * values, axis=1) / jnp.sum(weights, axis=1)


def _weights(p: "Mixture") -> jax.Array:
    """The weights of the components, ``[n, K]``."""
    return jax.vmap(lambda mixture: mixture.probabilities())(p)


def _ends_of_support(p: "Mixture", level: jax.Array) -> jax.Array:
    """The largest possible target where the level is 1, else the smallest one."""
    weights = _weights(p)
    at_end = jnp.where(level >= 1, 1.0, 0.0).astype(weights.dtype)
    ends = p._flat_components().quantile(jnp.repeat(at_end, weights.shape[1]))
    ends = jax.lax.stop_gradient(p._by_component(ends))
    likeliest = jnp.take_along_axis(ends, jnp.argmax(weights, axis=1)[:, None], axis=1)
    ends = jnp.where(weights > 0, ends, likeliest)
    return jnp.where(level >= 1, jnp.max(ends, axis=1), jnp.min(ends, axis=1))


def crps(p: "Mixture", targets: jax.Array) -> jax.Array | None:
    """sum_k w_k s_k - sum_kl w_k w_l (d_kl - (d_kk + d_ll) / 2) / 2, ``[n]``.

    s_k is the score of component k, and d_kl = E|Z_k - Z_l|.  None if components have no formulas.
    """
    p = widened(p)
    components = p.components
    one = jax.tree.map(lambda x: x[0, 0], components)
    if jax.eval_shape(lambda c: c.mean_absolute_difference(c), one) is None:
        return None

    def divergence(c: Any, d: Any) -> jax.Array:
        own = c.mean_absolute_difference(c) + d.mean_absolute_difference(d)
        return c.mean_absolute_difference(d) - own / 2

    def scores(components: Any, y: jax.Array) -> jax.Array:
        return components.crps_closed_form(y)

    of_components = average(p, targets, scores)
    between = jax.vmap(lambda p: sum_over_pairs(p, p, divergence, ()))(p)
    total = jax.vmap(lambda p: jnp.sum(p.probabilities()))(p)
    return of_components - between / (2 * jnp.square(total))
