"""Mixtures with any target kernel: weighted sums over all components, or pairs of them."""

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
    # The weights sum to one, so that a mixture of residuals is the residual of the mixture; and a
    # pair of components may have a form that does not cancel.
    def of_components(c, d):
        return residual_product(c, kernel, y, d, z)

    return _sum_over_pairs(p, q, of_components, (kernel, y, z))


def _sum_over_pairs(p, q, function, captured) -> jax.Array:
    """A loop over pairs of components; of a tile of mixtures, tiles run inside of it.

    `captured` holds the arrays that the function uses besides its arguments.

    The derivative evaluates each pair of components again instead of holding K^2 tiles.
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
