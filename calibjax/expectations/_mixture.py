"""Mixtures with any target kernel: weighted sums over all components, or pairs of them."""

import jax
import jax.numpy as jnp

from calibjax.distributions import Mixture
from calibjax.expectations._dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels import vmap_pairs


@mean_embedding.register(Mixture, object)
def mixture_mean(p, kernel, y):
    values = jax.vmap(lambda c: mean_embedding(c, kernel, y))(p.components)
    return jnp.sum(p.probabilities() * values)


@inner_product.register(Mixture, object)
def mixture_inner(p, kernel, q):
    return _sum_over_pairs(p, q, lambda c, d: inner_product(c, kernel, d))


@residual_product.register(Mixture, object)
def mixture_residual(p, kernel, y, q, z):
    # Since weights sum to one; each pair of components may have a form that does not cancel.
    return _sum_over_pairs(p, q, lambda c, d: residual_product(c, kernel, y, d, z))


def _sum_over_pairs(p, q, function) -> jax.Array:
    values = vmap_pairs(function)(p.components, q.components)
    weights = p.probabilities()[:, None] * q.probabilities()[None, :]
    return jnp.sum(weights * values)
