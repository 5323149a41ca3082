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

from calibjax._numbers import mirrored
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
def laplace_laplacian_mean(p: Laplace, kernel: LaplacianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    return _one_prediction(mirrored(loc - y), scale)


@inner_product.register(Laplace, LaplacianKernel)
def laplace_laplacian_inner(p: Laplace, kernel: LaplacianKernel, q: Laplace) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    return _two_predictions(mirrored(p_loc - q_loc), p_scale, q_scale)


def _within_reach(d: jax.Array, widest: jax.Array) -> jax.Array:
    """The distance d, cut at 1000 times the widest scale.

    From there on exp(-d / s) is 0 for all scales s, even in float64.  A distance that grew further
    would only overflow, for in the narrowest scale it may be larger by many orders of magnitude.
    The distance in one scale alone must not be cut: the derivatives rely on d = s t for all scales.
    """
    return jnp.minimum(d, 1e3 * widest)


@jax.custom_jvp
def _one_prediction(d: jax.Array, scale: jax.Array) -> jax.Array:
    """E k(Z, y) at the distance d of y from the location."""
    d = _within_reach(d, jnp.maximum(scale, 1.0))
    return (jnp.exp(-d) + d * first_difference(d, d / scale)) / (1 + scale)


@_one_prediction.defjvp
def _one_prediction_jvp(primals, tangents):
    """The partial derivatives by d and beta, in closed form.

    With t = d / beta, E = (beta e^{-t} - e^{-d}) / (beta^2 - 1), whose derivative by d is
    (e^{-d} - e^{-t}) / (beta^2 - 1) = -t Phi(d, t) / (1 + beta).  By beta, the form above has the
    factor 1 / (1 + beta), whose derivative contributes -E / (1 + beta), and t, whose derivative
    -t / beta makes -d t Phi_t / beta = -t^2 Phi_t of d Phi, where Phi_t is the derivative of
    Phi(d, t) by t.
    """
    (d, scale), (d_tangent, scale_tangent) = primals, tangents
    d = _within_reach(d, jnp.maximum(scale, 1.0))
    t = d / scale
    difference = first_difference(d, t)
    value = (jnp.exp(-d) + d * difference) / (1 + scale)
    difference_by_t = first_slopes(d, t, difference)[1]
    by_d = -t * difference / (1 + scale)
    by_scale = -(value + t * (t * difference_by_t)) / (1 + scale)
    return value, by_d * d_tangent + by_scale * scale_tangent


@jax.custom_jvp
def _two_predictions(d: jax.Array, p_scale: jax.Array, q_scale: jax.Array) -> jax.Array:
    """E k(Z, Z') at the distance d of the locations."""
    s0, s1, s2 = _descending(p_scale, q_scale, jnp.ones_like(p_scale))
    d = _within_reach(d, s0)
    t0, t1, t2 = d / s0, d / s1, d / s2
    first, second = first_and_second_difference(t0, t1, t2)
    q02, q12 = s2 / (s0 + s2), s2 / (s1 + s2)
    a, b = jnp.exp(-t0) + t0 * first, t0 * (t1 * second)
    return a * (1 - q02 * q12) / (s0 + s1) + b * (q02 / (s1 + s2))


@_two_predictions.defjvp
def _two_predictions_jvp(primals, tangents):
    r"""The partial derivatives by d and the scales, in closed form.

    By d: the law of the sum of three Laplace variables has the partial fractions
    E = u_0^2 u_1^2 u_2^2 sum_i e^{-d u_i} / (u_i prod_{j != i} (u_j^2 - u_i^2)) in the rates
    u_i = 1 / s_i.  Hence its derivative by d is -u_0^2 u_1^2 u_2^2 times the second divided
    difference of w -> e^{-d sqrt(w)} at the squares of the rates, and this is
    d (d Phi2 + Phi(t_1, t_2) / (u_1 + u_2)) / ((u_0 + u_1) (u_0 + u_2)), as its first one at
    u_i^2, u_j^2 is -d Phi(t_i, t_j) / (u_i + u_j).  Both terms have one sign.

    By the scales: E = c a + c_2 b with a = e^{-t_0} + t_0 Phi and b = t_0 t_1 Phi2.  The product
    rule is applied to s_i dE/ds_i, because t_i depends on s_i alone, with s_i dt_i/ds_i = -t_i.
    The factors give, with q_ij = s_j / (s_i + s_j),
    s_0 dc/ds_0 = -(1 - q_01) (1 - q_02) (q_01 + q_02) / (s_1 + s_2), where exchanging indices
    yields the other two, s_i dc_2/ds_i = -(1 - q_i2) c_2 for i = 0, 1, and
    s_2 dc_2/ds_2 = (1 - q_02 - q_12) c_2.
    """
    (d, p_scale, q_scale), (d_tangent, p_tangent, q_tangent) = primals, tangents
    one = jnp.ones_like(p_scale)
    scales, scale_tangents = jax.jvp(
        _descending, (p_scale, q_scale, one), (p_tangent, q_tangent, jnp.zeros_like(one))
    )
    s0, s1, s2 = scales
    d = _within_reach(d, s0)
    t0, t1, t2 = d / s0, d / s1, d / s2
    (first, second), last, slopes = differences_and_slopes(t0, t1, t2)
    by_t0, by_t1, second_by_t0, second_by_t1, second_by_t2 = slopes
    decay = jnp.exp(-t0)
    q01, q02, q12 = s1 / (s0 + s1), s2 / (s0 + s2), s2 / (s1 + s2)
    c, c2 = (1 - q02 * q12) / (s0 + s1), q02 / (s1 + s2)
    a, b = decay + t0 * first, t0 * (t1 * second)
    value = c * a + c2 * b
    by_d = -t0 * (t1 * second / s2 + last / (s1 + s2)) * (1 - q02) / (s0 + s1)
    by_s0 = (
        -(1 - q01) * (1 - q02) * (q01 + q02) / (s1 + s2) * a
        - c2 * (1 - q02) * b
        - t0 * (c * (first - decay + t0 * by_t0) + c2 * t1 * (second + t0 * second_by_t0))
    ) / s0
    by_s1 = (
        -q01 * (1 - q12) * (1 - q01 + q12) / (s0 + s2) * a
        - c2 * (1 - q12) * b
        - t0 * (t1 * (c * by_t1 + c2 * (second + t1 * second_by_t1)))
    ) / s1
    by_s2 = (
        -q02 * q12 * (2 - q02 - q12) / (s0 + s1) * a
        + c2 * (1 - q02 - q12) * b
        - t0 * (t1 * (t2 * (c2 * second_by_t2)))
    ) / s2
    partials = zip((by_d, by_s0, by_s1, by_s2), (d_tangent, *scale_tangents), strict=True)
    return value, sum(partial * tangent for partial, tangent in partials)


def _descending(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, ...]:
    """The three numbers, largest first.

    They are exchanged in pairs: a maximum splits its derivative at ties, which would make second
    derivatives wrong there.
    """
    a, b = _larger_first(a, b)
    b, c = _larger_first(b, c)
    a, b = _larger_first(a, b)
    return a, b, c


def _larger_first(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    exchange = a < b
    return jnp.where(exchange, b, a), jnp.where(exchange, a, b)
