"""The CRPS of a mixture, from the closed forms of its components."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._struct import widened
from calibjax.distributions._mixture._cdf import average
from calibjax.distributions._mixture._pairs import sum_over_pairs


def crps(p: Any, targets: jax.Array) -> jax.Array | None:
    """sum_k w_k s_k - sum_kl w_k w_l (d_kl - (d_kk + d_ll) / 2) / 2, ``[n]``.

    s_k is the score of component k, and d_kl = E|Z_k - Z_l|.  None if components have no formulas.
    """
    p = widened(p)
    components = p.components
    if components.mean_absolute_difference(components) is None:
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
