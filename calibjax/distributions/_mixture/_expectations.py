"""Mixtures with any target kernel: weighted sums over (pairs of) components."""

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax.distributions._mixture._mixture import Mixture
from calibjax.distributions._mixture._sums import sum_over_pairs
from calibjax.expectations import inner_product, mean_embedding, residual_product
from calibjax.kernels import KernelLike


@mean_embedding.register(Mixture, object)
def mixture_mean(p: Mixture, kernel: KernelLike, y: jax.Array) -> jax.Array:
    values = jax.vmap(lambda c: mean_embedding(c, kernel, y))(p.components)
    return jnp.sum(p.probabilities() * values)


@inner_product.register(Mixture, object)
def mixture_inner(p: Mixture, kernel: KernelLike, q: Mixture) -> jax.Array:
    return sum_over_pairs(p, q, lambda c, d: inner_product(c, kernel, d), kernel)


@residual_product.register(Mixture, object)
def mixture_residual(
    p: Mixture, kernel: KernelLike, y: jax.Array, q: Mixture, z: jax.Array
) -> jax.Array:
    # The weights sum to one, so that delta_y - p = sum_k weights[k] (delta_y - p_k).  The residual
    # product of two components may have a form that does not cancel.
    def component_product(c: Distribution, d: Distribution) -> jax.Array:
        return residual_product(c, kernel, y, d, z)

    return sum_over_pairs(p, q, component_product, (kernel, y, z))
