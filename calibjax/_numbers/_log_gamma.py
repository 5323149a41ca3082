"""Logarithms of gamma functions, and of quotients, without the cancellation of large terms."""

import functools

import jax
import jax.numpy as jnp
from jax.scipy import special

from calibjax._numbers._arithmetic import quotient

#: The least number for which `stirling_remainder` is exact in float64.
MANY_COUNTS = 16


def stirling_remainder(k: jax.Array) -> jax.Array:
    """log(k! / (sqrt(2 pi k) k^k exp(-k))) for k >= 16, whether or not k is an integer."""
    inverse = 1 / jnp.square(k)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    return (1 / 12 - inverse * (1 / 360 - inverse * series)) / k


def log_gamma_ratio(a: jax.Array) -> jax.Array:
    """log(a^a exp(-a) / Gamma(a)) for a > 0, without the cancellation of large terms."""
    # What float32 needs of the series is exact for smaller numbers.
    least = MANY_COUNTS if a.dtype == jnp.float64 else MANY_COUNTS / 4
    is_large = a >= least
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, least)
    of_small = special.xlogy(small, small) - small - special.gammaln(small)
    of_large = jnp.log(large / (2 * jnp.pi)) / 2 - stirling_remainder(large)
    return jnp.where(is_large, of_large, of_small)


def log_quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(a / b) for positive numbers, with all its digits where a / b is near 1."""
    excess = quotient(a - b, b)
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, excess, 0.0)), jnp.log(a) - jnp.log(b))


def log_gamma_step(x: jax.Array) -> jax.Array:
    """log Gamma(x + 1/2) - log Gamma(x), without the cancellation of large terms.

    Gamma(x + 1/2) / Gamma(x) is Gamma(x + 17/2) / Gamma(x + 8) times the product over k < 8 of
    (x + k) / (x + k + 1/2); and for large s, log Gamma(s + 1/2) - log Gamma(s) has the asymptotic
    series log(s) / 2 - 1 / (8 s) + 1 / (192 s^3) - 1 / (640 s^5) + 17 / (14336 s^7) - ….
    """
    shifted = x + _STEP_SHIFT
    inverse = 1 / jnp.square(shifted)
    series = functools.reduce(lambda sum, c: sum * inverse + c, _STEP_SERIES, jnp.zeros_like(x))
    ratios = [(x + k) / (x + k + 0.5) for k in range(_STEP_SHIFT)]
    product = functools.reduce(jnp.multiply, ratios)
    return jnp.log(shifted) / 2 + series / shifted + jnp.log(product)


_STEP_SHIFT = 8
#: Coefficients of s^-11, s^-9, …, s^-1.
_STEP_SERIES = (691 / 180224, -31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8)
