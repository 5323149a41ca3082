r"""Normal predictions, of numbers or of independent coordinates, with a Laplacian target kernel.

For d = |mu - y| and g = 1 / lengthscale, with q = d / sigma and x_-+ = (g sigma -+ q) / sqrt(2),
E exp(-g |Z - y|) = exp(-q^2/2) (erfcx(x_-) + erfcx(x_+)) / 2.  The difference of two predictions is
a normal variable with the sum of their variances, so that one formula serves both primitives.  Over
independent coordinates the expectations multiply.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._erfcx import erfcx, erfcx_and_slope
from calibjax._loops import fusible, in_one_loop, row_by_row
from calibjax._numerics import absolute, mirrored
from calibjax.distributions._normal._normal import MultivariateNormalDiag, Normal
from calibjax.expectations import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
)
from calibjax.kernels import LaplacianKernel, in_lengthscales


def laplacian_of_normal(rate: jax.Array, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """E exp(-rate |D|) for D ~ N(difference, scale^2) and rate >= 1, smooth in all arguments."""
    reflected, tail, decay, lower, upper, _ = _terms(rate, mirrored(difference), scale)
    left, right = erfcx(lower), erfcx(upper)
    return jnp.where(reflected, decay + tail * (right - left), tail * (left + right))


def _terms(rate: Any, d: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    """What the expectation is made of, for a distance d >= 0.

    Whether x_- is reflected; exp(-q^2/2) / 2; exp((g sigma)^2 / 2 - g d) where x_- is reflected;
    |x_-| and x_+; q.
    """
    # From here on the expectation is 0 even in float64, but its derivatives have powers of d.
    d = jnp.minimum(d, 60 * scale + 1e3)
    # Beyond 60 standard deviations exp(-q^2/2) is 0 even in float64, and q^2 may overflow.  There
    # d / sigma is not computed: in reverse mode its slope, which may overflow, is multiplied by 0.
    far = d >= 60 * scale
    q = jnp.where(far, 60.0, d / jnp.where(far, 1.0, scale))
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
    """The partial derivatives of `_value_and_slopes`, times the tangents."""
    value, by_difference, by_scale = _value_and_slopes(*primals)
    return value, by_difference * tangents[0] + by_scale * tangents[1]


def _value_and_slopes(difference: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """The expectation and its derivatives by the mean and the scale of D ~ N(m, sigma^2).

    The expectation E = B + A consists of B = E exp(-D) 1{D > 0}, which has x_-, and of
    A = E exp(D) 1{D < 0}, which has x_+.  Shifting D gives E_m = E f'(D) for f = exp(-|.|), and
    f' = -f on the right, f on the left: E_m = A - B.

    The normal density satisfies the heat equation, hence E_sigma = sigma E_mm.  As f'' = f - 2
    delta, E_mm = E - 2 phi, where phi = exp(-q^2/2) / (sqrt(2 pi) sigma) is the density of D at 0.
    This difference cancels where sigma is large.  There nothing is reflected, and
    E = tail (erfcx(x_-) + erfcx(x_+)) is differentiated factor by factor: by sigma, q and x_-+ have
    the derivatives -q / sigma and (1 +- q / sigma) / sqrt(2), and with
    erfcx'(x) = 2 x erfcx(x) - 2 / sqrt(pi) all terms in q / sigma together are -q (A - B).
    """
    reflected, tail, decay, lower, upper, q = _terms(1.0, mirrored(difference), scale)
    (left, left_slope), (right, right_slope) = erfcx_and_slope(lower), erfcx_and_slope(upper)
    above, below = tail * right, tail * left
    by_slopes = tail * ((left_slope + right_slope) / math.sqrt(2)) - q * (above - below)
    below = jnp.where(reflected, decay - below, below)
    value = below + above
    by_heat = scale * value - math.sqrt(8 / math.pi) * tail
    by_scale = jnp.where(reflected, by_heat, by_slopes)
    by_difference = jnp.where(difference < 0, below - above, above - below)
    return [value, by_difference, by_scale]


def normal_laplacian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _expectation(loc - y, scale)


def normal_laplacian_inner(p, kernel, q):
    return normal_laplacian_mean(normal_difference(p, q), kernel, jnp.zeros_like(q.loc))


def diag_laplacian_mean(p, kernel, y):
    return jnp.prod(normal_laplacian_mean(Normal(p.loc, p.scale_diag), kernel, y))


def diag_laplacian_inner(p, kernel, q):
    pair = Normal(p.loc, p.scale_diag), Normal(q.loc, q.scale_diag)
    return jnp.prod(normal_laplacian_inner(pair[0], kernel, pair[1]))


@residual_product.register(MultivariateNormalDiag, LaplacianKernel)
def diag_laplacian_residual(p, kernel, y, q, z):
    return _residual(*_in_lengthscales(p, kernel, y), *_in_lengthscales(q, kernel, z))


@residual_product_tile.register(MultivariateNormalDiag, LaplacianKernel)
def diag_laplacian_residual_tile(ps, kernel, ys, qs, zs):
    in_lengthscales = jax.vmap(_in_lengthscales, (0, None, 0))
    return row_by_row(_residual, in_lengthscales(ps, kernel, ys), in_lengthscales(qs, kernel, zs))


def _in_lengthscales(p, kernel, y) -> list[jax.Array]:
    return in_lengthscales(kernel, p.loc, p.scale_diag, y)


def _residual(p_loc, p_scale, y, q_loc, q_scale, z) -> jax.Array:
    """The four terms of h for vectors, coordinates first, of pairs on any further axes."""
    differences = (
        (p_loc - z, p_scale),
        (q_loc - y, q_scale),
        (p_loc - q_loc, _hypotenuse(p_scale, q_scale)),
    )
    ours, theirs, both = (jnp.prod(x, axis=0) for x in _held_expectations(differences))
    of_targets = jnp.exp(-jnp.sum(absolute(y - z), axis=0))
    return (of_targets - ours) - (theirs - both)


@jax.custom_jvp
def _held_expectations(differences) -> list[jax.Array]:
    """`_expectation` of several laws, in memory before a CPU multiplies over coordinates.

    XLA would make them inside of the loop over coordinates, which is not vectorised.
    """
    return in_one_loop([fusible(_expectation)(*law) for law in differences])


@_held_expectations.defjvp
def _held_expectations_jvp(primals, tangents):
    """The partial derivatives of `_value_and_slopes`, all of one law out of one loop."""
    values, products = [], []
    for law, tangent in zip(primals[0], tangents[0], strict=True):
        value, by_difference, by_scale = in_one_loop(fusible(_value_and_slopes)(*law))
        values.append(value)
        products.append(by_difference * tangent[0] + by_scale * tangent[1])
    return values, products


def normal_difference(p: Normal, q: Normal) -> Normal:
    """The law of Z - Z'."""
    return Normal(p.loc - q.loc, _hypotenuse(p.scale, q.scale))


@jax.custom_jvp
def _hypotenuse(a: jax.Array, b: jax.Array) -> jax.Array:
    """h = sqrt(a^2 + b^2) for a, b > 0."""
    return jnp.hypot(a, b)


@_hypotenuse.defjvp
def _hypotenuse_jvp(primals, tangents):
    """The slopes a / h and b / h: those of jnp.hypot divide by squares, which underflow."""
    (a, b), (a_tangent, b_tangent) = primals, tangents
    h = _hypotenuse(a, b)
    return h, (a / h) * a_tangent + (b / h) * b_tangent


mean_embedding.register(Normal, LaplacianKernel)(normal_laplacian_mean)
inner_product.register(Normal, LaplacianKernel)(normal_laplacian_inner)
mean_embedding.register(MultivariateNormalDiag, LaplacianKernel)(diag_laplacian_mean)
inner_product.register(MultivariateNormalDiag, LaplacianKernel)(diag_laplacian_inner)
