r"""Normal predictions, of numbers or of independent coordinates, with a Laplacian target kernel.

For d = |mu - y| and g = 1 / lengthscale, with q = d / sigma and x = (g sigma -+ q) / sqrt(2),
E exp(-g |Z - y|) = exp(-q^2/2) (erfcx(x_-) + erfcx(x_+)) / 2; two predictions add their variances,
coordinates multiply.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._erfcx import erfcx, erfcx_and_slope
from calibjax._numerics import mirrored
from calibjax.distributions._normal._normal import MultivariateNormalDiag, Normal
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import LaplacianKernel, in_lengthscales


def laplacian_of_normal(rate: jax.Array, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """E exp(-rate |D|) for D ~ N(difference, scale^2), elementwise and smooth in everything."""
    reflected, tail, decay, lower, upper, _ = _terms(rate, mirrored(difference), scale)
    left, right = erfcx(lower), erfcx(upper)
    return jnp.where(reflected, decay + tail * (right - left), tail * (left + right))


def _terms(rate: Any, d: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    # Beyond 60 standard deviations exp(-q^2/2) is 0 even in float64, and q^2 may overflow.
    q = jnp.minimum(d / scale, 60.0)
    tail = jnp.exp(-jnp.square(q) / 2) / 2
    lower, upper = (rate * scale - q) / math.sqrt(2), (rate * scale + q) / math.sqrt(2)
    # erfcx overflows left of 0: reflected there, where erfcx(-x) = 2 exp(x^2) - erfcx(x).
    reflected = lower < 0
    exponent = jnp.where(reflected, rate * (rate * jnp.square(scale) / 2 - d), 0.0)
    # Not |lower|, whose slope at 0 would be taken for 0 on the border.
    return reflected, tail, jnp.exp(exponent), jnp.where(reflected, -lower, lower), upper, q


@jax.custom_jvp
def _expectation(difference: jax.Array, scale: jax.Array) -> jax.Array:
    """`laplacian_of_normal` at rate 1."""
    return laplacian_of_normal(jnp.ones_like(difference), difference, scale)


@_expectation.defjvp
def _expectation_jvp(primals, tangents):
    """With E = B + A, where A is the term of x_+: E_d = A - B, and E_sigma = sigma E_dd (heat).

    E_dd = E - 2 phi with the density phi of D at 0.  That cancels only where sigma is large, and
    nothing is reflected: there it is by erfcx'.
    """
    (difference, scale), (of_difference, of_scale) = primals, tangents
    reflected, tail, decay, lower, upper, q = _terms(1.0, mirrored(difference), scale)
    (left, left_slope), (right, right_slope) = erfcx_and_slope(lower), erfcx_and_slope(upper)
    above, below = tail * right, tail * left
    by_slopes = tail * ((left_slope + right_slope) / math.sqrt(2)) - q * (above - below)
    below = jnp.where(reflected, decay - below, below)
    value = below + above
    in_scale = jnp.where(reflected, scale * value - math.sqrt(8 / math.pi) * tail, by_slopes)
    in_difference = jnp.where(difference < 0, below - above, above - below)
    return value, in_difference * of_difference + in_scale * of_scale


def normal_laplacian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _expectation(loc - y, scale)


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
