"""Sums over all pairs of components of two mixtures."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying


def sum_over_pairs(
    p: Any, q: Any, function: Callable[[Any, Any], jax.Array], captured: Any
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
