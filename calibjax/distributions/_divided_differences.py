r"""Divided differences of e^{-x} and of erfcx, with every derivative where nodes meet.

Phi(x, y) = (e^{-y} - e^{-x}) / (x - y) and Phi2(x, y, z) = (Phi(x, y) - Phi(y, z)) / (z - x), both
positive and symmetric.  Far nodes take these quotients.  Close nodes take series around their mean
m: with u = (x - y) / 2, Phi = e^{-m} sinh(u) / u, and with the complete homogeneous symmetric
polynomials h_k of the deviations from m, Phi2 = e^{-m} sum_k (-1)^k h_k / (k + 2)!.  For erfcx the
difference quotient of its polynomial is a polynomial too, and serves all nodes.
"""

import math

import jax
import jax.numpy as jnp

from calibjax._loops.fusion import recomputed, recomputed_exp
from calibjax._numbers.derivatives import polynomial
from calibjax._numbers.special_functions import coefficients

# Gaps up to which nodes are close: quotients beyond cancel by factors of 1.3 and 5, and the series
# within are short.
_CLOSE_PAIR, _CLOSE_TRIPLE = 2.0, 1.0


@jax.custom_jvp
def first_difference(x: jax.Array, y: jax.Array) -> jax.Array:
    """Phi(x, y) for x, y >= 0, elementwise."""
    gap = x - y
    close = jnp.square(gap) < _CLOSE_PAIR**2
    series = recomputed_exp(-(x + y) / 2) * _sinhc(jnp.where(close, gap, 0.0) / 2)
    differences = recomputed_exp(-y) - recomputed_exp(-x)
    quotient = recomputed(differences / jnp.where(close, 1.0, gap))
    return jnp.where(close, series, quotient)


@first_difference.defjvp
def _first_difference_jvp(primals, tangents):
    """The partial derivatives of `first_slopes`, times the tangents."""
    (x, y), (dx, dy) = primals, tangents
    value = first_difference(x, y)
    by_x, by_y = first_slopes(x, y, value)
    return value, by_x * dx + by_y * dy


def first_slopes(x: jax.Array, y: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The partial derivatives of Phi(x, y) by x and y, given its value.

    Far nodes: (e^{-y} - e^{-x}) / (x - y) has the derivatives (e^{-x} - Phi) / (x - y) by x and
    (Phi - e^{-y}) / (x - y) by y.  Close nodes: Phi = e^{-m} sinhc(u) with m = (x + y) / 2 and
    u = (x - y) / 2 has the derivatives e^{-m} sinhc'(u) / 2 - Phi / 2 by x and
    -e^{-m} sinhc'(u) / 2 - Phi / 2 by y.

    Both cases share one division at the end, here and below.
    """
    gap = x - y
    close = jnp.square(gap) < _CLOSE_PAIR**2
    odd = recomputed_exp(-(x + y) / 2) * _sinhc_slope(jnp.where(close, gap, 0.0) / 2) / 2
    divisor = jnp.where(close, 1.0, gap)
    by_x = jnp.where(close, odd - value / 2, recomputed_exp(-x) - value) / divisor
    by_y = jnp.where(close, -odd - value / 2, value - recomputed_exp(-y)) / divisor
    return recomputed(by_x), recomputed(by_y)


@jax.custom_jvp
def first_and_second_difference(
    x: jax.Array, y: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Phi(x, y) and Phi2(x, y, z) for 0 <= x <= y <= z, elementwise."""
    return _all_differences(x, y, z)[:2]


def _all_differences(x, y, z):
    """Phi(x, y), Phi2(x, y, z) and Phi(y, z)."""
    first, last = first_difference(x, y), first_difference(y, z)
    close = z - x < _CLOSE_TRIPLE
    quotient = recomputed((first - last) / jnp.where(close, 1.0, z - x))
    mean, deviations = _deviations(x, y, z, close)
    second = jnp.where(close, jnp.exp(-mean) * _second_series(*deviations)[0], quotient)
    return first, second, last


def _deviations(x, y, z, close):
    """The mean of the nodes, and their deviations from it, which are 0 unless they are close."""
    mean = (x + y + z) / 3
    return mean, [jnp.where(close, node - mean, 0.0) for node in (x, y, z)]


@first_and_second_difference.defjvp
def _first_and_second_jvp(primals, tangents):
    """The partial derivatives of `differences_and_slopes`, times the tangents."""
    (dx, dy, dz), (values, _, slopes) = tangents, differences_and_slopes(*primals)
    by_x, by_y, second_by_x, second_by_y, second_by_z = slopes
    second = second_by_x * dx + second_by_y * dy + second_by_z * dz
    return values, (by_x * dx + by_y * dy, second)


def differences_and_slopes(
    x: jax.Array, y: jax.Array, z: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], jax.Array, tuple[jax.Array, ...]]:
    """Phi(x, y) and Phi2(x, y, z); Phi(y, z); the derivatives of the first two.

    They are those of Phi(x, y) by x and y, then those of Phi2 by x, y and z.

    Far nodes: Phi2 = (Phi(x, y) - Phi(y, z)) / (z - x).  By the quotient rule its derivatives have
    the divisor z - x, and the numerators Phi_x(x, y) + Phi2, Phi_y(x, y) - Phi_y(y, z) and
    -Phi_z(y, z) - Phi2, where an index names the node of the derivative.

    Close nodes: Phi2 = e^{-m} S(s, t), where m is the mean of the nodes and S the series in
    s = (u^2 + v^2 + w^2) / 2 and t = u v w of the deviations u, v, w.  The derivative of m by any
    node is 1/3; by x, that of u is 2/3, and those of v and w are -1/3.  As u + v + w = 0, s has
    the derivative u by x, and t has (2 v w - u w - u v) / 3 = v w - (v w + u w + u v) / 3 =
    v w + s / 3, because s = -(v w + u w + u v).  Hence the derivative of Phi2 by x is
    e^{-m} (S_s u + S_t (v w + s / 3)) - Phi2 / 3, and likewise by y and z.
    """
    first, second, last = _all_differences(x, y, z)
    by_x, by_y = first_slopes(x, y, first)
    last_by_y, last_by_z = first_slopes(y, z, last)
    close = z - x < _CLOSE_TRIPLE
    divisor = jnp.where(close, 1.0, z - x)
    mean, (u, v, w) = _deviations(x, y, z, close)
    _, by_s, by_t = _second_series(u, v, w)
    third_of_s = (jnp.square(u) + jnp.square(v) + jnp.square(w)) / 6
    # Where e^m would overflow nothing is left of the slopes, but their derivatives would be NaN.
    most = math.log(jnp.finfo(x.dtype).max) - 3
    grown = jnp.exp(jnp.where(close, jnp.minimum(mean, most), 0.0))
    by_s, by_t = recomputed(by_s / grown), recomputed(by_t / grown)

    def slope(deviation, others, far_numerator):
        """The derivative of Phi2 by a node, given the product of the two other deviations."""
        near = by_s * deviation + by_t * (others + third_of_s) - second / 3
        return recomputed(jnp.where(close, near, far_numerator) / divisor)

    slopes = (
        slope(u, v * w, by_x + second),
        slope(v, u * w, by_y - last_by_y),
        slope(w, u * v, -last_by_z - second),
    )
    return (first, second), last, (by_x, by_y, *slopes)


def _sinhc(u: jax.Array) -> jax.Array:
    """sinh(u) / u for |u| <= 1, by powers of its square."""
    degree = 8 if u.dtype == jnp.float64 else 4
    terms = [1 / math.factorial(2 * k + 1) for k in range(degree, -1, -1)]
    return polynomial(terms, jnp.square(u))


def _sinhc_slope(u: jax.Array) -> jax.Array:
    """(sinh(u) / u)' for |u| <= 1."""
    degree = 9 if u.dtype == jnp.float64 else 5
    terms = [2 * k / math.factorial(2 * k + 1) for k in range(degree, 0, -1)]
    return u * polynomial(terms, jnp.square(u))


def _second_series(
    u: jax.Array, v: jax.Array, w: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """S = sum_k (-1)^k h_k(u, v, w) / (k + 2)!, for u + v + w = 0 and gaps up to 1; S_s and S_t.

    The generating function of the h_k is 1 / ((1 - u x) (1 - v x) (1 - w x)).  As u + v + w = 0,
    the denominator is 1 - s x^2 - t x^3 with s = (u^2 + v^2 + w^2) / 2 and t = u v w, so that
    h_k = s h_{k-2} + t h_{k-3}.  Clenshaw's rule sums a series of such terms backwards, by
    b_k = c_k + s b_{k+2} + t b_{k+3}, and the sum is b_0.  Differentiating the rule gives the same
    rule for the derivatives of b_k, with b_{k+2} (by s) or b_{k+3} (by t) in the place of c_k.
    """
    degree = 14 if u.dtype == jnp.float64 else 7
    s, t = (jnp.square(u) + jnp.square(v) + jnp.square(w)) / 2, u * v * w
    # The three last terms of each recurrence, the newest first.
    sums, by_s, by_t = ([jnp.zeros_like(u)] * 3 for _ in range(3))
    for k in range(degree, -1, -1):
        by_s = [sums[1] + s * by_s[1] + t * by_s[2], *by_s[:2]]
        by_t = [sums[2] + s * by_t[1] + t * by_t[2], *by_t[:2]]
        sums = [(-1) ** k / math.factorial(k + 2) + s * sums[1] + t * sums[2], *sums[:2]]
    return sums[0], by_s[0], by_t[0]


#: The polynomial of erfcx keeps its digits, and those of its slope, this far left of 0.
ERFCX_BELOW_ZERO = 1 / 16


def erfcx_factors(ux: jax.Array, uy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P(ux), P(uy) and (P(ux) - P(uy)) / (ux - uy), where erfcx(x) = u P(u) with u = 1 / (x + 3).

    For x >= -1/16, elementwise.  P is a polynomial in t = 1 - 6 u, and Horner's rule p <- p t + c
    gives all three in the same steps.  As (p_x t_x + c) - (p_y t_y + c) =
    p_x (t_x - t_y) + (p_x - p_y) t_y, the quotient r = (p_x - p_y) / (t_x - t_y) takes the steps
    r <- r t_y + p_x from 0, each before p_x takes its own; t_x - t_y = -6 (ux - uy).
    """
    tx, ty = 1 - 6 * ux, 1 - 6 * uy
    px, py, quotient = (jnp.zeros_like(ux) for _ in range(3))
    for c in coefficients(ux.dtype):
        quotient = quotient * ty + px
        px, py = px * tx + c, py * ty + c
    return px, py, -6 * quotient
