r"""Laplace predictions of real numbers with a Gaussian target kernel.

In units of the lengthscale the kernel is a multiple of a normal density.  With d = |mu - y|,
a = 1 / beta and F(beta) = a E exp(-a |X|) for X ~ N(d, 1), E k(Z, y) = sqrt(pi / 2) F(beta).  For
two predictions, with d = |mu - mu'| and the divided difference F(beta, beta') of F,
E k(Z, Z') = sqrt(pi / 2) (F(beta) + beta'^2 F(beta, beta') / (beta + beta')).

With x = (a - d) / sqrt(2) and x' = (a + d) / sqrt(2), F(beta) is
a e^{-d^2/2} (erfcx(x) + erfcx(x')) / 2, or, left of 0, where erfcx(x) overflows,
a e^{-a (d - a/2)} + a e^{-d^2/2} (erfcx(x') - erfcx(-x)) / 2.  F(beta, beta') divides these term by
term, so that nothing cancels where the scales meet.
"""

import math

import jax
import jax.numpy as jnp

from calibjax._numbers import mirrored
from calibjax.distributions._laplace._divided_differences import (
    ERFCX_BELOW_ZERO,
    erfcx_factors,
    first_difference,
)
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.distributions._normal._gaussian import normal_gaussian_residual
from calibjax.distributions._normal._normal import Normal
from calibjax.expectations import inner_product, mean_embedding, residual_product
from calibjax.kernels import GaussianKernel, in_lengthscales

_ROOT_HALF_PI = math.sqrt(math.pi / 2)


@mean_embedding.register(Laplace, GaussianKernel)
def laplace_gaussian_mean(p: Laplace, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    # What only the difference needs is never compiled.
    return _ROOT_HALF_PI * _value_and_difference(scale, scale, mirrored(loc - y))[0]


@inner_product.register(Laplace, GaussianKernel)
def laplace_gaussian_inner(p: Laplace, kernel: GaussianKernel, q: Laplace) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    # The value of the wider prediction, for the other way round the two terms cancel.
    exchange = p_scale < q_scale
    s, t = jnp.where(exchange, q_scale, p_scale), jnp.where(exchange, p_scale, q_scale)
    value, difference = _value_and_difference(s, t, mirrored(p_loc - q_loc))
    return _ROOT_HALF_PI * (value + t * (t / (s + t)) * difference)


@residual_product.register(Laplace, GaussianKernel)
def laplace_gaussian_residual(
    p: Laplace, kernel: GaussianKernel, y: jax.Array, q: Laplace, z: jax.Array
) -> jax.Array:
    """The four terms of h, without cancellation where both predictions are narrow.

    A Laplace law of scale beta has the characteristic function 1 / (1 + beta^2 w^2), whose powers
    of -w^2 are second derivatives of the kernel k(d) = exp(-d^2 / 2).  Hence the scales add
    c(beta, beta', d) = sum_j h_j(beta^2, beta'^2) k^(2j)(d) over j >= 1 to the kernel of the two
    locations, where h_j is the sum of all monomials of degree j and k^(2j)(d) =
    He_2j(d) exp(-d^2 / 2).  For narrow predictions h is made of four such sums, each cut after
    j = 4, which leaves out 1e-7 of the largest, and of the kernels of locations and targets, which
    are the h of normal predictions of scale 0.
    """
    wide = residual_product.fallback(p, kernel, y, q, z)
    p_loc, p_scale, q_loc, q_scale, y, z = in_lengthscales(
        kernel, p.loc, p.scale, q.loc, q.scale, y, z
    )
    certain = [Normal(loc, jnp.zeros_like(loc)) for loc in (p_loc, q_loc)]
    unit = GaussianKernel(jnp.ones_like(p_loc))
    of_locations = normal_gaussian_residual(certain[0], unit, y, certain[1], z)
    narrow = jnp.maximum(p_scale, q_scale) < (1e-3 if p_scale.dtype == jnp.float64 else 0.05)
    # The eighth powers of wide scales overflow: their derivatives, which nobody needs, would be
    # inf, and NaN where the choice between both forms multiplies them by 0.
    s, t = (jnp.square(jnp.where(narrow, scale, 0.0)) for scale in (p_scale, q_scale))
    zero = jnp.zeros_like(s)
    of_scales = _added_by_scales(s, t, p_loc - q_loc)
    of_scales -= _added_by_scales(s, zero, p_loc - z) + _added_by_scales(zero, t, y - q_loc)
    return jnp.where(narrow, of_locations + of_scales, wide)


def _added_by_scales(s: jax.Array, t: jax.Array, d: jax.Array) -> jax.Array:
    """sum_j h_j(s, t) He_2j(d) exp(-d^2 / 2) for j = 1, …, 4 and small s, t."""
    # Beyond 40 lengthscales the exponential is 0 even in float64, and He_8 may overflow.
    d = jnp.clip(d, -40.0, 40.0)
    even, odd = jnp.ones_like(d), d
    power, h, total = jnp.ones_like(s), jnp.ones_like(s), jnp.zeros_like(d)
    for j in range(1, 5):
        even = d * odd - (2 * j - 1) * even
        odd = d * even - 2 * j * odd
        power *= t
        h = s * h + power
        total += h * even
    return total * jnp.exp(-jnp.square(d) / 2)


def _value_and_difference(s: jax.Array, t: jax.Array, d: jax.Array) -> tuple[jax.Array, jax.Array]:
    """F(s) and F(s, t), for s >= t and d >= 0.

    With a = 1 / s and b = 1 / t, the terms a e^{-u} for u = a (d - a/2) and b e^{-v} for
    v = b (d - b/2), which are there left of 0, have the divided difference
    a b (b (d - (a + b) / 2) Phi(u, v) - e^{-u}), because a - b = -a b (s - t) and
    u - v = (a - b) (d - (a + b) / 2).  `_erfcx_terms` makes the other terms.
    """
    # From here on e^{-d^2/2} and e^{-a (d - a/2)} are 0 even in float64, and products may overflow.
    d = jnp.minimum(d, 2e3 * jnp.where(s < 1, 1.0, s))
    x, y = (1 / s - d) / math.sqrt(2), (1 / t - d) / math.sqrt(2)
    # Both scales take the same form, a little beyond 0 if need be; where neither form serves both,
    # they are so far apart that the quotient keeps its digits.
    right = jnp.minimum(x, y) > -ERFCX_BELOW_ZERO
    x_left, y_left = ~right & (x < ERFCX_BELOW_ZERO), ~right & (y < ERFCX_BELOW_ZERO)
    x_sign, y_sign = jnp.where(x_left, -1.0, 1.0), jnp.where(y_left, -1.0, 1.0)
    near = _erfcx_terms(s, t, d, x_sign, y_sign)
    far = _erfcx_terms(s, t, -d, 1.0, 1.0)
    tail = jnp.exp(-jnp.square(d) / 2) / 2

    # Rates of 0 leave no exponential.  The rates of narrow scales, whose squares overflow, would
    # spoil the derivatives even of a branch that is not taken.
    a = jnp.where(x_left, 1 / jnp.where(x_left, s, 1.0), 0.0)
    b = jnp.where(y_left, 1 / jnp.where(y_left, t, 1.0), 0.0)
    u, v = a * (d - a / 2), b * (d - b / 2)
    decay = b * first_difference(u, v) * (d - (a + b) / 2)
    difference = a * b * (decay - jnp.exp(-u)) + tail * (far[2] + x_sign * near[2])
    value = a * jnp.exp(-u) + tail * (far[0] + x_sign * near[0])
    other = b * jnp.exp(-v) + tail * (far[1] + y_sign * near[1])

    apart = x_left != y_left
    quotient = (value - other) / jnp.where(apart, s - t, 1.0)
    return value, jnp.where(apart, quotient, difference)


def _erfcx_terms(
    s: jax.Array, t: jax.Array, d: jax.Array, x_sign: jax.Array | float, y_sign: jax.Array | float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """erfcx(x) / s, erfcx(y) / t and their divided difference in the scales, for equal signs.

    Here x = x_sign (1 / s - d) / sqrt(2), and 1 / (x + 3) = s r with r = sqrt(2) / (x_sign + k s),
    k = 3 sqrt(2) - x_sign d.  The factor 1 / s goes into r: for small scales no derivative is a
    difference of large numbers.  With erfcx(x) / s = r P(s r), and r' and t for y, the divided
    difference is r' (P - P') / (s - t) + P (r - r') / (s - t), where
    s r - t r' = x_sign (s - t) r r' / sqrt(2) and r - r' = -k (s - t) r r' / sqrt(2).
    """
    k = 3 * math.sqrt(2) - x_sign * d
    x_r = math.sqrt(2) / (x_sign * (1 - s * d) + 3 * math.sqrt(2) * s)
    y_r = math.sqrt(2) / (y_sign * (1 - t * d) + 3 * math.sqrt(2) * t)
    x_factor, y_factor, quotient = erfcx_factors(s * x_r, t * y_r)
    difference = x_r * y_r * (x_sign * y_r * quotient - k * x_factor) / math.sqrt(2)
    return x_r * x_factor, y_r * y_factor, difference
