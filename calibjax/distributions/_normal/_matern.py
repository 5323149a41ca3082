r"""Normal predictions of numbers with a Matern target kernel.

r exp(-g r) is minus the derivative of exp(-g r) in g, so with E(g) = E exp(-g |Z - y|) the Matern
3/2 kernel gives E - g E' at g = sqrt(3), and Matern 5/2 gives E - g E' + g^2 E'' / 3 at g =
sqrt(5), in units of the lengthscale.
"""

import math

import jax
import jax.numpy as jnp

from calibjax.distributions._normal._laplacian import laplacian_of_normal
from calibjax.distributions._normal._normal import Normal
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import Matern32Kernel, Matern52Kernel, in_lengthscales


def _derivatives(g: float, difference: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """E(g), E'(g) and E''(g), by nested forward mode: every order keeps its digits."""
    rate = jnp.full_like(difference, g)

    def expectation(rate):
        return laplacian_of_normal(rate, difference, scale)

    def first(rate):
        return jax.jvp(expectation, (rate,), (jnp.ones_like(rate),))

    (value, slope), (_, curvature) = jax.jvp(first, (rate,), (jnp.ones_like(rate),))
    return [value, slope, curvature]


@mean_embedding.register(Normal, Matern32Kernel)
def normal_matern32_mean(p, kernel, y):
    g = math.sqrt(3)
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    value, slope, _ = _derivatives(g, loc - y, scale)
    return value - g * slope


@mean_embedding.register(Normal, Matern52Kernel)
def normal_matern52_mean(p, kernel, y):
    g = math.sqrt(5)
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    value, slope, curvature = _derivatives(g, loc - y, scale)
    return value - g * slope + g**2 * curvature / 3


@inner_product.register(Normal, Matern32Kernel)
@inner_product.register(Normal, Matern52Kernel)
def normal_matern_inner(p, kernel, q):
    # Z - Z' is normal: a single expectation with the variances added.
    difference = Normal(p.loc - q.loc, jnp.hypot(p.scale, q.scale))
    return mean_embedding(difference, kernel, jnp.zeros_like(q.loc))
