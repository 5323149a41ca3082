r"""Laplace predictions of real numbers with a Laplacian target kernel.

In units of the lengthscale, with d = |mu - y| and the divided differences Phi of e^{-x},
E k(Z, y) = (e^{-d} + d Phi(d, d / beta)) / (1 + beta).  For two predictions the kernel is a third
Laplace law: with the scales s_0, s_1, s_2 = beta, beta', 1 in any order and t_i = d / s_i, where d
is the distance of the locations,
E k(Z, Z') = c (e^{-t_0} + t_0 Phi(t_0, t_1)) + c_2 t_0 t_1 Phi2(t_0, t_1, t_2),
c = (s_0 s_1 + s_1 s_2 + s_0 s_2) / ((s_0 + s_1) (s_1 + s_2) (s_0 + s_2)) and
c_2 = s_2 / ((s_0 + s_2) (s_1 + s_2)).  All terms are positive: nothing cancels where scales meet.
"""

import jax
import jax.numpy as jnp

from calibjax._numerics import mirrored
from calibjax.distributions._laplace._divided_differences import (
    differences_and_slopes,
    first_and_second_difference,
    first_difference,
    first_slopes,
)
from calibjax.distributions._laplace._laplace import Laplace
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import LaplacianKernel, in_lengthscales


@mean_embedding.register(Laplace, LaplacianKernel)
def laplace_laplacian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _of_one(mirrored(loc - y), scale)


@inner_product.register(Laplace, LaplacianKernel)
def laplace_laplacian_inner(p, kernel, q):
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    return _of_two(mirrored(p_loc - q_loc), p_scale, q_scale)


@jax.custom_jvp
def _of_one(d: jax.Array, scale: jax.Array) -> jax.Array:
    """E k for one prediction at the distance d."""
    return (jnp.exp(-d) + d * first_difference(d, d / scale)) / (1 + scale)


@_of_one.defjvp
def _of_one_jvp(primals, tangents):
    (d, scale), (of_d, of_scale) = primals, tangents
    t = d / scale
    difference = first_difference(d, t)
    value = (jnp.exp(-d) + d * difference) / (1 + scale)
    slope = first_slopes(d, t, difference)[1]
    in_d = -t * difference / (1 + scale)
    return value, in_d * of_d - (value + t * (t * slope)) / (1 + scale) * of_scale


@jax.custom_jvp
def _of_two(d: jax.Array, p_scale: jax.Array, q_scale: jax.Array) -> jax.Array:
    """E k for two predictions at the distance d."""
    s0, s1, s2 = _descending(p_scale, q_scale, jnp.ones_like(p_scale))
    t0, t1, t2 = _in_scales(d, s0, s1, s2)
    first, second = first_and_second_difference(t0, t1, t2)
    r0, r1 = s2 / (s0 + s2), s2 / (s1 + s2)
    of_two = (jnp.exp(-t0) + t0 * first) * (1 - r0 * r1) / (s0 + s1)
    return of_two + t0 * t1 * second * (r0 / (s1 + s2))


def _in_scales(d: jax.Array, *scales: jax.Array) -> list[jax.Array]:
    # Beyond 1e9 scales nothing is left, and products of these may overflow.
    return [jnp.minimum(d / s, 1e9) for s in scales]


@_of_two.defjvp
def _of_two_jvp(primals, tangents):
    """The partial derivatives in closed form, each a single sum; that in d is of one sign.

    Those in the scales are of either term and its factor, times the scale.
    """
    (d, p_scale, q_scale), (of_d, of_p, of_q) = primals, tangents
    one = jnp.ones_like(p_scale)
    scales, of_scales = jax.jvp(_descending, (p_scale, q_scale, one), (of_p, of_q, 0 * one))
    s0, s1, s2 = scales
    t0, t1, t2 = _in_scales(d, *scales)
    (first, second), last, slopes = differences_and_slopes(t0, t1, t2)
    of_x, of_y, second_of_x, second_of_y, second_of_z = slopes
    decay = jnp.exp(-t0)
    q01, q02, q12 = s1 / (s0 + s1), s2 / (s0 + s2), s2 / (s1 + s2)
    c, c2 = (1 - q02 * q12) / (s0 + s1), q02 / (s1 + s2)
    a, b = decay + t0 * first, t0 * (t1 * second)
    value = c * a + c2 * b
    in_d = -t0 * (t1 * second / s2 + last / (s1 + s2)) * (1 - q02) / (s0 + s1)
    in_s0 = (
        -(1 - q01) * (1 - q02) * (q01 + q02) / (s1 + s2) * a
        - c2 * (1 - q02) * b
        - t0 * (c * (first - decay + t0 * of_x) + c2 * t1 * (second + t0 * second_of_x))
    ) / s0
    in_s1 = (
        -q01 * (1 - q12) * (1 - q01 + q12) / (s0 + s2) * a
        - c2 * (1 - q12) * b
        - t0 * (t1 * (c * of_y + c2 * (second + t1 * second_of_y)))
    ) / s1
    in_s2 = (
        -q02 * q12 * (2 - q02 - q12) / (s0 + s1) * a
        + c2 * (1 - q02 - q12) * b
        - t0 * (t1 * (t2 * (c2 * second_of_z)))
    ) / s2
    partials = zip((in_d, in_s0, in_s1, in_s2), (of_d, *of_scales), strict=True)
    return value, sum(partial * tangent for partial, tangent in partials)


def _descending(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, ...]:
    # By exchanges, for a maximum splits its derivative at ties, which spoils second derivatives.
    a, b = _larger_first(a, b)
    b, c = _larger_first(b, c)
    a, b = _larger_first(a, b)
    return a, b, c


def _larger_first(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    exchange = a < b
    return jnp.where(exchange, b, a), jnp.where(exchange, a, b)
