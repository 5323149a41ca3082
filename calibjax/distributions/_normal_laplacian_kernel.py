r"""Normal predictions, of numbers or of independent coordinates, with Laplacian and Matern kernels.

A Laplacian kernel: for d = |mu - y| and g = 1 / lengthscale, with q = d / sigma and
x_-+ = (g sigma -+ q) / sqrt(2),
E exp(-g |Z - y|) = exp(-q^2/2) (erfcx(x_-) + erfcx(x_+)) / 2.  The difference Z - Z' of two
predictions is normal and its variance is the sum of theirs, so that one formula serves both
primitives.  The expectations of independent coordinates are multiplied.

Matern kernels of numbers are, in units of the lengthscale, (1 + g r) exp(-g r) with g = sqrt(3) and
(1 + g r + g^2 r^2 / 3) exp(-g r) with g = sqrt(5).  Each factor r is minus a derivative in g of
exp(-g r).  With E(g) = E exp(-g |Z - y|) the expectations of the kernels are therefore E - g E' and
E - g E' + g^2 E'' / 3.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from calibjax._loops import in_one_loop, with_fusion_hints
from calibjax._numbers import absolute, erfcx, erfcx_and_slope, mirrored
from calibjax.distributions._normal import MultivariateNormalDiag, Normal
from calibjax.expectations import (
    inner_product,
    mean_embedding,
    register_row_by_row,
    register_rules,
)
from calibjax.kernels import LaplacianKernel, Matern32Kernel, Matern52Kernel, in_lengthscales


def laplacian_of_normal(rate: jax.Array, difference: jax.Array, scale: jax.Array) -> jax.Array:
    """E exp(-rate |D|) for D ~ N(difference, scale^2) and rate >= 1, smooth in all arguments."""
    reflected, tail, decay, lower, upper, _ = _erfcx_terms(rate, mirrored(difference), scale)
    left, right = erfcx(lower), erfcx(upper)
    return jnp.where(reflected, decay + tail * (right - left), tail * (left + right))


def _erfcx_terms(rate: jax.Array | float, d: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    """The terms of the expectation, for a distance d >= 0.

    They are a mask of x_- < 0, where erfcx(x_-) is computed by reflection; exp(-q^2/2) / 2;
    exp((g sigma)^2 / 2 - g d), which is 1 outside of the mask; |x_-|; x_+; and q.
    """
    # At larger d the expectation is 0 even in float64, but its derivatives contain powers of d.
    d = jnp.minimum(d, 60 * scale + 1e3)
    # Beyond 60 standard deviations exp(-q^2/2) is 0 even in float64, and q^2 may overflow.  The
    # constant 60 replaces d / sigma: in reverse mode 0 times its overflowing slope would be NaN.
    far = d >= 60 * scale
    q = jnp.where(far, 60.0, d / jnp.where(far, 1.0, scale))
    tail = jnp.exp(-jnp.square(q) / 2) / 2
    lower, upper = (rate * scale - q) / math.sqrt(2), (rate * scale + q) / math.sqrt(2)
    # erfcx overflows at negative x, where erfcx(x) = 2 exp(x^2) - erfcx(-x) is used instead.
    reflected = lower < 0
    exponent = jnp.where(reflected, rate * (rate * jnp.square(scale) / 2 - d), 0.0)
    # The mask stands for |lower|, because the derivative must be 1 where lower is 0.
    return reflected, tail, jnp.exp(exponent), jnp.where(reflected, -lower, lower), upper, q


@jax.custom_jvp
def _expectation_at_rate_1(difference: jax.Array, scale: jax.Array) -> jax.Array:
    """`laplacian_of_normal` at rate 1, with the derivative rule below."""
    return laplacian_of_normal(jnp.ones_like(difference), difference, scale)


@_expectation_at_rate_1.defjvp
def _expectation_at_rate_1_jvp(primals, tangents):
    """The partial derivatives of `_value_and_slopes`, times the tangents."""
    value, by_difference, by_scale = _value_and_slopes(*primals)
    return value, by_difference * tangents[0] + by_scale * tangents[1]


def _value_and_slopes(difference: jax.Array, scale: jax.Array) -> list[jax.Array]:
    """The expectation and its derivatives in the mean m and the scale of D ~ N(m, sigma^2).

    Let f = exp(-|.|) and E = E f(D) = A + B, where B = E exp(-D) 1{D > 0} is the term with x_- and
    A = E exp(D) 1{D < 0} is the term with x_+.  A shift of D gives E_m = E f'(D), and f' is -f for
    D > 0 and f for D < 0, so that E_m = A - B.

    The normal density satisfies the heat equation, hence E_sigma = sigma E_mm.  As f'' = f - 2
    delta, E_mm = E - 2 phi, where phi = exp(-q^2/2) / (sqrt(2 pi) sigma) is the density of D at 0.
    This is `by_heat`.  It cancels for large sigma, where x_- >= 0 and nothing is reflected.  There
    `by_slopes` is the derivative of E = tail (erfcx(x_-) + erfcx(x_+)): in sigma, q has the
    derivative -q / sigma and x_-+ has (1 +- q / sigma) / sqrt(2), and with
    erfcx'(x) = 2 x erfcx(x) - 2 / sqrt(pi) all terms in q / sigma add up to -q (A - B).
    """
    reflected, tail, decay, lower, upper, q = _erfcx_terms(1.0, mirrored(difference), scale)
    (left, left_slope), (right, right_slope) = erfcx_and_slope(lower), erfcx_and_slope(upper)
    above, below = tail * right, tail * left
    by_slopes = tail * ((left_slope + right_slope) / math.sqrt(2)) - q * (above - below)
    below = jnp.where(reflected, decay - below, below)
    value = below + above
    by_heat = scale * value - math.sqrt(8 / math.pi) * tail
    by_scale = jnp.where(reflected, by_heat, by_slopes)
    by_difference = jnp.where(difference < 0, below - above, above - below)
    return [value, by_difference, by_scale]


def normal_laplacian_mean(p: Normal, kernel: LaplacianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _expectation_at_rate_1(loc - y, scale)


def normal_laplacian_inner(p: Normal, kernel: LaplacianKernel, q: Normal) -> jax.Array:
    return normal_laplacian_mean(normal_difference(p, q), kernel, jnp.zeros_like(q.loc))


def diag_laplacian_mean(
    p: MultivariateNormalDiag, kernel: LaplacianKernel, y: jax.Array
) -> jax.Array:
    return jnp.prod(normal_laplacian_mean(Normal(p.loc, p.scale_diag), kernel, y))


def diag_laplacian_inner(
    p: MultivariateNormalDiag, kernel: LaplacianKernel, q: MultivariateNormalDiag
) -> jax.Array:
    pair = Normal(p.loc, p.scale_diag), Normal(q.loc, q.scale_diag)
    return jnp.prod(normal_laplacian_inner(pair[0], kernel, pair[1]))


def _in_lengthscales(
    p: MultivariateNormalDiag, kernel: LaplacianKernel, y: jax.Array
) -> list[jax.Array]:
    return in_lengthscales(kernel, p.loc, p.scale_diag, y)


def _vector_residual(p_loc, p_scale, y, q_loc, q_scale, z) -> jax.Array:
    """The four terms of h for vectors, coordinates first, of pairs on any further axes."""
    differences = (
        (p_loc - z, p_scale),
        (q_loc - y, q_scale),
        (p_loc - q_loc, _hypotenuse(p_scale, q_scale)),
    )
    ours, theirs, both = (jnp.prod(x, axis=0) for x in _expectations_in_memory(differences))
    of_targets = jnp.exp(-jnp.sum(absolute(y - z), axis=0))
    return (of_targets - ours) - (theirs - both)


@jax.custom_jvp
def _expectations_in_memory(differences: Sequence[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
    """`_expectation_at_rate_1` of several numbers, in memory before a CPU multiplies coordinates.

    XLA would make them inside of the loop over coordinates, which is not vectorised.
    """
    return in_one_loop([with_fusion_hints(_expectation_at_rate_1)(*law) for law in differences])


@_expectations_in_memory.defjvp
def _expectations_in_memory_jvp(primals, tangents):
    """The partial derivatives of `_value_and_slopes`, all of one distribution out of one loop."""
    values, products = [], []
    for law, tangent in zip(primals[0], tangents[0], strict=True):
        value, by_difference, by_scale = in_one_loop(with_fusion_hints(_value_and_slopes)(*law))
        values.append(value)
        products.append(by_difference * tangent[0] + by_scale * tangent[1])
    return values, products


def normal_difference(p: Normal, q: Normal) -> Normal:
    """The distribution of Z - Z' for independent Z ~ p and Z' ~ q."""
    return Normal(p.loc - q.loc, _hypotenuse(p.scale, q.scale))


@jax.custom_jvp
def _hypotenuse(a: jax.Array, b: jax.Array) -> jax.Array:
    """h = sqrt(a^2 + b^2) for a, b > 0."""
    return jnp.hypot(a, b)


@_hypotenuse.defjvp
def _hypotenuse_jvp(primals, tangents):
    """dh = (a / h) da + (b / h) db.

    The derivative of jnp.hypot divides by squares, which underflow.
    """
    (a, b), (a_tangent, b_tangent) = primals, tangents
    h = _hypotenuse(a, b)
    return h, (a / h) * a_tangent + (b / h) * b_tangent


register_rules(
    Normal,
    LaplacianKernel,
    mean_embedding=normal_laplacian_mean,
    inner_product=normal_laplacian_inner,
)
register_rules(
    MultivariateNormalDiag,
    LaplacianKernel,
    mean_embedding=diag_laplacian_mean,
    inner_product=diag_laplacian_inner,
)
register_row_by_row(MultivariateNormalDiag, LaplacianKernel, _in_lengthscales, _vector_residual)


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
