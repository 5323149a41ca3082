"""Mixtures with any target kernel: weighted sums over (pairs of) components."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying
from calibjax.distributions._mixture._mixture import Mixture
from calibjax.expectations import inner_product, mean_embedding, residual_product


@mean_embedding.register(Mixture, object)
def mixture_mean(p, kernel, y):
    values = jax.vmap(lambda c: mean_embedding(c, kernel, y))(p.components)
    return jnp.sum(p.probabilities() * values)


@inner_product.register(Mixture, object)
def mixture_inner(p, kernel, q):
    return _sum_over_pairs(p, q, lambda c, d: inner_product(c, kernel, d), kernel)


@residual_product.register(Mixture, object)
def mixture_residual(p, kernel, y, q, z):
    # The weights sum to one, so that delta_y - p = sum_k weights[k] (delta_y - p_k).  The residual
    # product of two components may have a form that does not cancel.
    def component_product(c, d):
        return residual_product(c, kernel, y, d, z)

    return _sum_over_pairs(p, q, component_product, (kernel, y, z))


def _sum_over_pairs(p, q, function, captured) -> jax.Array:
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
