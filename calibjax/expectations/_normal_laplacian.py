r"""Normal predictions, of numbers or of independent coordinates, with a Laplacian target kernel.

For d = |mu - y| and g = 1 / lengthscale, with q = d / sigma and x = (g sigma -+ q) / sqrt(2),
E exp(-g |Z - y|) = exp(-q^2/2) (erfcx(x_-) + erfcx(x_+)) / 2; two predictions add their variances,
coordinates multiply.
"""

import math

import jax
import jax.numpy as jnp

from calibjax._erfcx import erfcx
from calibjax._numerics import absolute
from calibjax.distributions import MultivariateNormalDiag, Normal
from calibjax.expectations._dispatch import inner_product, mean_embedding
from calibjax.kernels import LaplacianKernel, in_lengthscales


def laplacian_of_normal(rate: jax.Array, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """E exp(-rate |D|) for D ~ N(difference, scale^2), elementwise and smooth in everything."""
    d = absolute(difference)
    # Beyond 60 standard deviations exp(-q^2/2) is 0 even in float64, and q^2 may overflow.
    q = jnp.minimum(d / scale, 60.0)
    tail = jnp.exp(-jnp.square(q) / 2) / 2
    lower, upper = (rate * scale - q) / math.sqrt(2), (rate * scale + q) / math.sqrt(2)
    # erfcx overflows left of 0: reflected there, where erfcx(-x) = 2 exp(x^2) - erfcx(x).
    reflected = lower < 0
    exponent = jnp.where(reflected, rate * (rate * jnp.square(scale) / 2 - d), 0.0)
    # Not |lower|, whose slope at 0 would be taken for 0 on the border.
    left, right = erfcx(jnp.where(reflected, -lower, lower)), erfcx(upper)
    near = tail * (left + right)
    far = jnp.exp(exponent) + tail * (right - left)
    return jnp.where(reflected, far, near)


def normal_laplacian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return laplacian_of_normal(jnp.ones_like(loc), loc - y, scale)


def normal_laplacian_inner(p, kernel, q):
    return normal_laplacian_mean(_difference(p, q), kernel, jnp.zeros_like(q.loc))


def diag_laplacian_mean(p, kernel, y):
    return jnp.prod(normal_laplacian_mean(Normal(p.loc, p.scale_diag), kernel, y))


def diag_laplacian_inner(p, kernel, q):
    pair = Normal(p.loc, p.scale_diag), Normal(q.loc, q.scale_diag)
    return jnp.prod(normal_laplacian_inner(pair[0], kernel, pair[1]))


def _difference(p, q) -> Normal:
    """The law of Z - Z'."""
    return Normal(p.loc - q.loc, jnp.hypot(p.scale, q.scale))


mean_embedding.register(Normal, LaplacianKernel)(normal_laplacian_mean)
inner_product.register(Normal, LaplacianKernel)(normal_laplacian_inner)
mean_embedding.register(MultivariateNormalDiag, LaplacianKernel)(diag_laplacian_mean)
inner_product.register(MultivariateNormalDiag, LaplacianKernel)(diag_laplacian_inner)
