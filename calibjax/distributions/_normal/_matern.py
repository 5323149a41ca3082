r"""Normal predictions of numbers with a Matern target kernel.

In units of the lengthscale, the kernels are (1 + g r) exp(-g r) with g = sqrt(3), and
(1 + g r + g^2 r^2 / 3) exp(-g r) with g = sqrt(5).  Each factor r is minus a derivative in g of
exp(-g r).  With E(g) = E exp(-g |Z - y|) the expectations of the kernels are therefore E - g E' and
E - g E' + g^2 E'' / 3.
"""

import math

import jax
import jax.numpy as jnp

from calibjax.distributions._normal._laplacian import laplacian_of_normal, normal_difference
from calibjax.distributions._normal._normal import Normal
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import Matern32Kernel, Matern52Kernel, in_lengthscales


def _derivatives_in_g(g: float, difference: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """E(g), E'(g) and E''(g), by nested forward mode, which keeps the digits of each order."""
    # A smaller scale changes the expectation by less than rounding, because the kernels are smooth
    # at 0 and the change is of the order of scale^2.  The derivative of difference / scale would
    # overflow in float32.
    scale = jnp.maximum(scale, 1e-15)
    rate = jnp.full_like(difference, g)

    def expectation(rate: jax.Array) -> jax.Array:
        return laplacian_of_normal(rate, difference, scale)

    def first(rate: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(expectation, (rate,), (jnp.ones_like(rate),))

    (value, slope), (_, curvature) = jax.jvp(first, (rate,), (jnp.ones_like(rate),))
    return [value, slope, curvature]


@mean_embedding.register(Normal, Matern32Kernel)
def normal_matern32_mean(p: Normal, kernel: Matern32Kernel, y: jax.Array) -> jax.Array:
    g = math.sqrt(3)
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    value, slope, _ = _derivatives_in_g(g, loc - y, scale)
    return value - g * slope


@mean_embedding.register(Normal, Matern52Kernel)
def normal_matern52_mean(p: Normal, kernel: Matern52Kernel, y: jax.Array) -> jax.Array:
    g = math.sqrt(5)
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    value, slope, curvature = _derivatives_in_g(g, loc - y, scale)
    return value - g * slope + g**2 * curvature / 3


@inner_product.register(Normal, Matern32Kernel)
@inner_product.register(Normal, Matern52Kernel)
def normal_matern_inner(p: Normal, kernel: Matern32Kernel | Matern52Kernel, q: Normal) -> jax.Array:
    # Z - Z' is normal: one expectation serves both primitives.
    return mean_embedding(normal_difference(p, q), kernel, jnp.zeros_like(q.loc))
