r"""Poisson predictions with the white target kernel.

E k(Z, y) = P(Z = y) and
E k(Z, Z') = P(Z = Z') = exp(-(lambda + lambda')) I_0(2 sqrt(lambda lambda')).
"""

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax.distributions._poisson._poisson import Poisson
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import WhiteKernel


@mean_embedding.register(Poisson, WhiteKernel)
def poisson_white_mean(p, kernel, y):
    return p.probability(y)


@inner_product.register(Poisson, WhiteKernel)
def poisson_white_inner(p, kernel, q):
    return _probability_of_equality(p.rate, q.rate)


def _probability_of_equality(rate: jax.Array, other: jax.Array) -> jax.Array:
    """P(Z = Z') = exp(-(rate + other)) I_0(2 sqrt(x)) with x = rate other.

    Where x < 1 it is computed from I_0(2 sqrt(x)) = sum_k x^k / k!^2, which is smooth at rate 0.
    """
    x = rate * other
    small = x < 1
    root, other_root = (jnp.sqrt(jnp.where(small, 1.0, r)) for r in (rate, other))
    decay = jnp.exp(-jnp.square(root - other_root))
    large = decay * special.i0e(2 * root * other_root)
    x, series = jnp.where(small, x, 0.0), jnp.ones_like(x)
    for k in range(12, 0, -1):
        series = 1 + series * x / k**2
    return jnp.where(small, jnp.exp(-(rate + other)) * series, large)
