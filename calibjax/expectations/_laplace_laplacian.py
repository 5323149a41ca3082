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

from calibjax._divided_differences import first_and_second_difference, first_difference
from calibjax._numerics import absolute
from calibjax.distributions import Laplace
from calibjax.expectations._dispatch import inner_product, mean_embedding
from calibjax.kernels import LaplacianKernel, in_lengthscales


@mean_embedding.register(Laplace, LaplacianKernel)
def laplace_laplacian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, p.loc, p.scale, y)
    d = absolute(loc - y)
    return (jnp.exp(-d) + d * first_difference(d, d / scale)) / (1 + scale)


@inner_product.register(Laplace, LaplacianKernel)
def laplace_laplacian_inner(p, kernel, q):
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, p.loc, p.scale, q.loc, q.scale)
    d = absolute(p_loc - q_loc)
    s0, s1, s2 = _descending(p_scale, q_scale, jnp.ones_like(p_scale))
    # Beyond 1e9 scales nothing is left, and products of these may overflow.
    t0, t1, t2 = (jnp.minimum(d / s, 1e9) for s in (s0, s1, s2))
    first, second = first_and_second_difference(t0, t1, t2)
    r0, r1 = s2 / (s0 + s2), s2 / (s1 + s2)
    of_two = (jnp.exp(-t0) + t0 * first) * (1 - r0 * r1) / (s0 + s1)
    return of_two + t0 * t1 * second * (r0 / (s1 + s2))


def _descending(a: jax.Array, b: jax.Array, c: jax.Array) -> tuple[jax.Array, ...]:
    # By exchanges, for a maximum splits its derivative at ties, which spoils second derivatives.
    a, b = _larger_first(a, b)
    b, c = _larger_first(b, c)
    a, b = _larger_first(a, b)
    return a, b, c


def _larger_first(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    exchange = a < b
    return jnp.where(exchange, b, a), jnp.where(exchange, a, b)
