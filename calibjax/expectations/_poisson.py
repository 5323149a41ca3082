r"""Poisson predictions, with a white target kernel in closed form, with any other as a series.

White: E k(Z, y) = P(Z = y), and P(Z = Z') = exp(-(lambda + lambda')) I_0(2 sqrt(lambda lambda')).
Any other kernel: sums over 0 … max_count, which leave out a probability of less than 4e-18; a rate
for which that does not hold gives NaN.
"""

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax._numerics import dot
from calibjax.distributions import Poisson, count_bound
from calibjax.expectations._dispatch import inner_product, mean_embedding
from calibjax.kernels import WhiteKernel


@mean_embedding.register(Poisson, WhiteKernel)
def poisson_white_mean(p, kernel, y):
    return probability(y, p.rate)


@inner_product.register(Poisson, WhiteKernel)
def poisson_white_inner(p, kernel, q):
    return _coincidence(p.rate, q.rate)


@mean_embedding.register(Poisson, object)
def poisson_mean(p, kernel, y):
    at_counts = jax.vmap(kernel, in_axes=(0, None))(_counts(p, kernel), y)
    return dot(_probabilities(p, kernel), at_counts.astype(p.rate.dtype))


@inner_product.register(Poisson, object)
def poisson_inner(p, kernel, q):
    embedding = jax.vmap(lambda z: poisson_mean(q, kernel, z))(_counts(p, kernel))
    return dot(_probabilities(p, kernel), embedding)


def _counts(p, kernel) -> jax.Array:
    if p.max_count is None:
        raise ValueError(
            f"max_count must be given for Poisson predictions with a {type(kernel).__name__}, "
            "whose expectations are sums over 0 … max_count: it can be chosen only for rates that "
            "are known outside of jit, and below some 3500."
        )
    return jnp.arange(p.max_count + 1, dtype=jnp.int32)


def _probabilities(p, kernel) -> jax.Array:
    values = jax.vmap(probability, in_axes=(0, None))(_counts(p, kernel), p.rate)
    return jnp.where(count_bound(p.rate) <= p.max_count, values, jnp.nan)


@jax.custom_jvp
def probability(count: jax.Array, rate: jax.Array) -> jax.Array:
    """P(Z = count), elementwise for count >= 0 and rate >= 0.

    The logarithm of rate^k exp(-rate) / k! is a difference of large numbers.  For few counts this
    is a product; for more, by Stirling's formula with its remainder delta(k) and
    x = (k - rate) / rate, it is exp(-rate ((1 + x) log(1 + x) - x) - delta(k)) / sqrt(2 pi k)
    (Loader, Fast and accurate computation of binomial probabilities, 2000).
    """
    k = count.astype(rate.dtype)
    product = jnp.exp(-rate)
    for j in range(1, _STIRLING_FROM):
        product *= jnp.where(k >= j, rate / j, 1.0)
    positive = jnp.where(rate > 0, rate, 1.0)
    large = jnp.maximum(k, _STIRLING_FROM)
    x = (large - positive) / positive
    deviance = positive * ((1 + x) * jnp.log1p(x) - x)
    ratio = jnp.exp(-deviance - _stirling_error(large)) / jnp.sqrt(2 * jnp.pi * large)
    return jnp.where((k < _STIRLING_FROM) | (rate == 0), product, ratio)


@probability.defjvp
def _probability_jvp(primals, tangents):
    # Exact and finite at rate 0, where the logarithm of the rate has no derivative.
    (count, rate), (_, tangent) = primals, tangents
    value = probability(count, rate)
    before = jnp.where(count > 0, probability(jnp.maximum(count - 1, 0), rate), 0.0)
    return value, (before - value) * tangent


# From here on the terms of the series below are enough for float64.
_STIRLING_FROM = 16


def _stirling_error(k: jax.Array) -> jax.Array:
    """log k! - log(sqrt(2 pi k) (k / e)^k), for large k."""
    inverse = 1 / jnp.square(k)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    return (1 / 12 - inverse * (1 / 360 - inverse * series)) / k


@jax.custom_jvp
def _coincidence(rate: jax.Array, other: jax.Array) -> jax.Array:
    """P(Z = Z')."""
    root = jnp.sqrt(rate * other)
    return _decay(rate, other) * special.i0e(2 * root)


def _decay(rate: jax.Array, other: jax.Array) -> jax.Array:
    """exp(-(sqrt(rate) - sqrt(other))^2)."""
    roots = jnp.sqrt(rate) + jnp.sqrt(other)
    return jnp.exp(-jnp.square((rate - other) / jnp.where(roots > 0, roots, 1.0)))


@_coincidence.defjvp
def _coincidence_jvp(primals, tangents):
    # d/dx I_0(2 sqrt(x)) = I_1(2 sqrt(x)) / sqrt(x), which is 1 at x = 0, where sqrt has no slope.
    (rate, other), (of_rate, of_other) = primals, tangents
    value = _coincidence(rate, other)
    root = jnp.sqrt(rate * other)
    positive = jnp.where(root > 0, root, 1.0)
    ratio = jnp.where(root > 0, special.i1e(2 * positive) / positive, 1.0)
    slope = _decay(rate, other) * ratio
    return value, (other * slope - value) * of_rate + (rate * slope - value) * of_other
