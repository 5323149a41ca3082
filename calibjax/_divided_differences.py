r"""Divided differences of e^{-x} and of erfcx, with every derivative where nodes meet.

Phi(x, y) = (e^{-y} - e^{-x}) / (x - y) and Phi2(x, y, z) = (Phi(x, y) - Phi(y, z)) / (z - x), both
positive and symmetric.  Far nodes take these quotients.  Close nodes take series around their mean
m: with u = (x - y) / 2, Phi = e^{-m} sinh(u) / u, and with the complete homogeneous symmetric
polynomials h_k of the deviations from m, Phi2 = e^{-m} sum_k (-1)^k h_k / (k + 2)!.  For erfcx the
difference quotient of its polynomial is a polynomial too, and serves all nodes.
"""

import functools
import math

import jax
import jax.numpy as jnp

from calibjax._erfcx import coefficients

# Gaps up to which nodes are close: quotients beyond cancel by factors of 1.3 and 5, and the series
# within are short.
_CLOSE_PAIR, _CLOSE_TRIPLE = 2.0, 1.0


def first_difference(x: jax.Array, y: jax.Array) -> jax.Array:
    """Phi(x, y) for x, y >= 0, elementwise."""
    gap = x - y
    close = jnp.square(gap) < _CLOSE_PAIR**2
    quotient = (jnp.exp(-y) - jnp.exp(-x)) / jnp.where(close, 1.0, gap)
    series = jnp.exp(-(x + y) / 2) * _sinhc(jnp.where(close, gap, 0.0) / 2)
    return jnp.where(close, series, quotient)


def first_and_second_difference(
    x: jax.Array, y: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Phi(x, y) and Phi2(x, y, z) for 0 <= x <= y <= z, elementwise."""
    first = first_difference(x, y)
    close = z - x < _CLOSE_TRIPLE
    quotient = (first - first_difference(y, z)) / jnp.where(close, 1.0, z - x)
    mean = (x + y + z) / 3
    deviations = [jnp.where(close, node - mean, 0.0) for node in (x, y, z)]
    return first, jnp.where(close, jnp.exp(-mean) * _second_series(*deviations), quotient)


def _sinhc(u: jax.Array) -> jax.Array:
    """sinh(u) / u for |u| <= 1, by powers of its square."""
    degree = 8 if u.dtype == jnp.float64 else 4
    square = jnp.square(u)
    terms = [1 / math.factorial(2 * k + 1) for k in range(degree, -1, -1)]
    return functools.reduce(lambda sum, c: sum * square + c, terms, jnp.zeros_like(u))


def _second_series(u: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
    """sum_k (-1)^k h_k(u, v, w) / (k + 2)! for u + v + w = 0 and gaps up to 1.

    As the sum of the deviations is 0, h_k = s h_{k-2} + t h_{k-3} with half the sum of their
    squares s and their product t: the sum is that of Clenshaw's recurrence.
    """
    degree = 14 if u.dtype == jnp.float64 else 7
    s, t = (jnp.square(u) + jnp.square(v) + jnp.square(w)) / 2, u * v * w
    sums = [jnp.zeros_like(u)] * 3
    for k in range(degree, -1, -1):
        sums = [(-1) ** k / math.factorial(k + 2) + s * sums[1] + t * sums[2], *sums[:2]]
    return sums[0]


#: The polynomial of erfcx keeps its digits, and those of its slope, this far left of 0.
ERFCX_BELOW_ZERO = 1 / 16


def erfcx_factors(ux: jax.Array, uy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """erfcx(x) / u(x) and its like at y, for u = 1 / (x + 3) at x, y >= -1/16, elementwise.

    And their difference quotient in u.  The quotients are polynomials in t = 1 - 6 u: Horner's rule
    gives all three in the same steps.
    """
    tx, ty = 1 - 6 * ux, 1 - 6 * uy
    px, py, quotient = (jnp.zeros_like(ux) for _ in range(3))
    for c in coefficients(ux.dtype):
        quotient = quotient * ty + px
        px, py = px * tx + c, py * ty + c
    return px, py, -6 * quotient
