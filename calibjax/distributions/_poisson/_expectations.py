r"""Poisson predictions: a closed form for the white target kernel, a series for any other kernel.

White: E k(Z, y) = P(Z = y) and
E k(Z, Z') = P(Z = Z') = exp(-(lambda + lambda')) I_0(2 sqrt(lambda lambda')).
Any other kernel: a sum over the counts 0 … max_count.  The result is NaN unless larger counts have
a probability of less than 4e-18.
"""

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax._numerics import dot
from calibjax.distributions._poisson._poisson import (
    MANY_COUNTS,
    Poisson,
    count_bound,
    log_relative_to_stirling,
)
from calibjax.expectations import inner_product, mean_embedding
from calibjax.kernels import WhiteKernel


@mean_embedding.register(Poisson, WhiteKernel)
def poisson_white_mean(p, kernel, y):
    return probability(y, p.rate)


@inner_product.register(Poisson, WhiteKernel)
def poisson_white_inner(p, kernel, q):
    return _probability_of_equality(p.rate, q.rate)


@mean_embedding.register(Poisson, object)
def poisson_mean(p, kernel, y):
    at_counts = jax.vmap(kernel, in_axes=(0, None))(_counts(p, kernel), y)
    return dot(_count_probabilities(p, kernel), at_counts.astype(p.rate.dtype))


@inner_product.register(Poisson, object)
def poisson_inner(p, kernel, q):
    embedding = jax.vmap(lambda z: poisson_mean(q, kernel, z))(_counts(p, kernel))
    return dot(_count_probabilities(p, kernel), embedding)


def _counts(p, kernel) -> jax.Array:
    """The counts 0 … max_count; ValueError if max_count is not known."""
    if p.max_count is None:
        raise ValueError(
            f"max_count must be given for Poisson predictions with a {type(kernel).__name__}, "
            "whose expectations are sums over 0 … max_count: it can be chosen only for rates that "
            "are known outside of jit, and below some 3500."
        )
    return jnp.arange(p.max_count + 1, dtype=jnp.int32)


def _count_probabilities(p, kernel) -> jax.Array:
    values = jax.vmap(probability, in_axes=(0, None))(_counts(p, kernel), p.rate)
    return jnp.where(count_bound(p.rate) <= p.max_count, values, jnp.nan)


@jax.custom_jvp
def probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """P(Z = count), elementwise, for count >= 0 and rate >= 0."""
    k = count.astype(rate.dtype)
    few = jnp.exp(-rate)
    for j in range(1, MANY_COUNTS):
        few *= jnp.where(k >= j, rate / j, 1.0)
    large = jnp.maximum(k, MANY_COUNTS)
    many = jnp.exp(log_relative_to_stirling(large, rate)) / jnp.sqrt(2 * jnp.pi * large)
    return jnp.where(k < MANY_COUNTS, few, many)


@probability.defjvp
def _probability_jvp(primals, tangents):
    """The derivative of rate^k exp(-rate) / k! in the rate is P(Z = k - 1) - P(Z = k).

    This form is exact and finite at rate 0, where log(rate) has no derivative.
    """
    (count, rate), (_, tangent) = primals, tangents
    value = probability(count, rate)
    before = jnp.where(count > 0, probability(jnp.maximum(count - 1, 0), rate), 0.0)
    return value, (before - value) * tangent


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
