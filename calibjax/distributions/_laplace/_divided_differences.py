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


@jax.custom_jvp
def first_difference(x: jax.Array, y: jax.Array) -> jax.Array:
    """Phi(x, y) for x, y >= 0, elementwise."""
    gap = x - y
    close = jnp.square(gap) < _CLOSE_PAIR**2
    series = jnp.exp(-(x + y) / 2) * _sinhc(jnp.where(close, gap, 0.0) / 2)
    quotient = (jnp.exp(-y) - jnp.exp(-x)) / jnp.where(close, 1.0, gap)
    return jnp.where(close, series, quotient)


@first_difference.defjvp
def _first_difference_jvp(primals, tangents):
    """By the value itself: far, the quotients of Phi - e^{-x} and e^{-y} - Phi by the gap.

    Close, e^{-m} (+-(sinh(u) / u)' - sinh(u) / u) / 2.  Here and below derivatives end in one
    division, which XLA makes once where it would repeat what is cheaper.
    """
    (x, y), (dx, dy) = primals, tangents
    value = first_difference(x, y)
    of_x, of_y = first_slopes(x, y, value)
    return value, of_x * dx + of_y * dy


def first_slopes(x: jax.Array, y: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The partial derivatives of Phi(x, y), given its value."""
    gap = x - y
    close = jnp.square(gap) < _CLOSE_PAIR**2
    odd = jnp.exp(-(x + y) / 2) * _sinhc_slope(jnp.where(close, gap, 0.0) / 2) / 2
    divisor = jnp.where(close, 1.0, gap)
    of_x = jnp.where(close, odd - value / 2, jnp.exp(-x) - value) / divisor
    of_y = jnp.where(close, -odd - value / 2, value - jnp.exp(-y)) / divisor
    return of_x, of_y


@jax.custom_jvp
def first_and_second_difference(
    x: jax.Array, y: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Phi(x, y) and Phi2(x, y, z) for 0 <= x <= y <= z, elementwise."""
    return _both_differences(x, y, z)[:2]


def _both_differences(x, y, z):
    first, last = first_difference(x, y), first_difference(y, z)
    close = z - x < _CLOSE_TRIPLE
    quotient = (first - last) / jnp.where(close, 1.0, z - x)
    mean, deviations = _deviations(x, y, z, close)
    second = jnp.where(close, jnp.exp(-mean) * _second_series(*deviations)[0], quotient)
    return first, second, last


def _deviations(x, y, z, close):
    """The mean, and what is left of close nodes."""
    mean = (x + y + z) / 3
    return mean, [jnp.where(close, node - mean, 0.0) for node in (x, y, z)]


@first_and_second_difference.defjvp
def _both_jvp(primals, tangents):
    (dx, dy, dz), (values, _, slopes) = tangents, differences_and_slopes(*primals)
    of_x, of_y, second_of_x, second_of_y, second_of_z = slopes
    second = second_of_x * dx + second_of_y * dy + second_of_z * dz
    return values, (of_x * dx + of_y * dy, second)


def differences_and_slopes(
    x: jax.Array, y: jax.Array, z: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], jax.Array, tuple[jax.Array, ...]]:
    """Phi(x, y) and Phi2(x, y, z); Phi(y, z); the derivatives of both in x and y and in x, y, z.

    Far, those of the quotients; close, those of the series in s and t, where s' = u and
    t' = v w + s / 3 in the node of deviation u, and of e^{-m}.
    """
    first, second, last = _both_differences(x, y, z)
    of_x, of_y = first_slopes(x, y, first)
    last_of_y, last_of_z = first_slopes(y, z, last)
    close = z - x < _CLOSE_TRIPLE
    divisor = jnp.where(close, 1.0, z - x)
    mean, (u, v, w) = _deviations(x, y, z, close)
    _, of_s, of_t = _second_series(u, v, w)
    third = (jnp.square(u) + jnp.square(v) + jnp.square(w)) / 6
    # Where it would overflow nothing is left of the slopes, but their derivatives would be NaN.
    most = math.log(jnp.finfo(x.dtype).max) - 3
    grown = jnp.exp(jnp.where(close, jnp.minimum(mean, most), 0.0))
    of_s, of_t = of_s / grown, of_t / grown

    def slope(deviation, product, far):
        near = of_s * deviation + of_t * (product + third) - second / 3
        return jnp.where(close, near, far) / divisor

    slopes = (
        slope(u, v * w, of_x + second),
        slope(v, u * w, of_y - last_of_y),
        slope(w, u * v, -last_of_z - second),
    )
    return (first, second), last, (of_x, of_y, *slopes)


def _sinhc(u: jax.Array) -> jax.Array:
    """sinh(u) / u for |u| <= 1, by powers of its square."""
    degree = 8 if u.dtype == jnp.float64 else 4
    return _powers(u, [1 / math.factorial(2 * k + 1) for k in range(degree, -1, -1)])


def _sinhc_slope(u: jax.Array) -> jax.Array:
    """(sinh(u) / u)' for |u| <= 1."""
    degree = 9 if u.dtype == jnp.float64 else 5
    return u * _powers(u, [2 * k / math.factorial(2 * k + 1) for k in range(degree, 0, -1)])


def _powers(u: jax.Array, terms: list[float]) -> jax.Array:
    """A polynomial in u^2, highest power first."""
    square = jnp.square(u)
    return functools.reduce(lambda sum, c: sum * square + c, terms, jnp.zeros_like(u))


def _second_series(
    u: jax.Array, v: jax.Array, w: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """sum_k (-1)^k h_k(u, v, w) / (k + 2)! for u + v + w = 0 and gaps up to 1.

    As the sum of the deviations is 0, h_k = s h_{k-2} + t h_{k-3} with half the sum of their
    squares s and their product t: the sum is that of Clenshaw's recurrence.  And its derivatives in
    s and t.
    """
    degree = 14 if u.dtype == jnp.float64 else 7
    s, t = (jnp.square(u) + jnp.square(v) + jnp.square(w)) / 2, u * v * w
    sums, of_s, of_t = ([jnp.zeros_like(u)] * 3 for _ in range(3))
    for k in range(degree, -1, -1):
        slopes = sums[1] + s * of_s[1] + t * of_s[2], sums[2] + s * of_t[1] + t * of_t[2]
        of_s, of_t = [slopes[0], *of_s[:2]], [slopes[1], *of_t[:2]]
        sums = [(-1) ** k / math.factorial(k + 2) + s * sums[1] + t * sums[2], *sums[:2]]
    return sums[0], of_s[0], of_t[0]


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
