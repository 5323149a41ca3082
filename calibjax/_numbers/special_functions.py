"""Special functions that keep their digits: erfcx, log gamma, and functions less their linear part.

erfcx(x) = exp(x^2) erfc(x) decays like 1 / (sqrt(pi) x).  Its first factor overflows, its second
one underflows, and its derivative 2 x erfcx(x) - 2 / sqrt(pi) cancels.  jax.scipy.special.erfcx is
absent from jax 0.10.0; in 0.10.2 its float32 values fail near x = 9.3, and its derivatives cancel
for large x.  Here it is u = 1 / (x + 3) times a polynomial in t = 1 - 6 u, which maps
x >= 0 onto -1 <= t <= 1.  Nothing overflows or cancels.  The n-th derivative is u^(n+1), which
decays as it should, times another polynomial in t.
"""

import functools

import jax
import jax.numpy as jnp
from jax.scipy import special
from jax.typing import DTypeLike

from calibjax._numbers.arithmetic import fast_where, quotient
from calibjax._numbers.derivatives import polynomial

# Coefficients of the powers of t, highest power first, from tests/golden/erfcx_coefficients.py.
# Their sum is well conditioned on -1 <= t <= 1: Horner's rule is as accurate as Clenshaw's, and a
# quarter cheaper.
_FLOAT32 = (
    -2.49272039e-06, -1.02881612e-05, 2.77585393e-05, 9.86939934e-05, -2.75113657e-04,
    -5.42572807e-04, 3.03350404e-03, -1.21436704e-03, -2.68271439e-02, 1.19528081e-01,
    -3.10467268e-01, 5.90228337e-01, -8.83394453e-01, 1.07400691e+00,
)  # fmt: skip
_FLOAT64 = (
    -7.1902571713222030e-11, -1.3500642256798214e-10, 6.3163560463996319e-10,
    1.6548653598909394e-09, -2.3223380497760333e-09, -1.1014234599054842e-08,
    1.2682735605486027e-09, 5.4874097799138594e-08, 4.3628414845292028e-08,
    -2.3761131752337484e-07, -4.0618551837223578e-07, 1.0013722371824734e-06,
    2.7645081270955054e-06, -4.7502050387015065e-06, -1.7470276946754135e-05,
    3.0398415827091235e-05, 1.0756142628457055e-04, -2.7677788767511361e-04,
    -5.4830968416148785e-04, 3.0340620052649362e-03, -1.2124166277399343e-03,
    -2.6827234624695905e-02, 1.1952776128730833e-01, -3.1046726190056229e-01,
    5.9022835710410160e-01, -8.8339445316988363e-01, 1.0740069070883398e+00,
)  # fmt: skip


def coefficients(dtype: DTypeLike) -> tuple[float, ...]:
    """The coefficients of the polynomial in t for a dtype, highest power first."""
    return _FLOAT64 if dtype == jnp.float64 else _FLOAT32


def erfcx(x: jax.Array) -> jax.Array:
    """exp(x^2) erfc(x), elementwise, for x >= 0 in float32 or float64.

    Largest relative errors measured against mpmath over 0 <= x <= 1e11 (CPU):

    =======  =======  ================  =================
    dtype    value    first derivative  second derivative
    =======  =======  ================  =================
    float32  4.1e-07  6.5e-07           1.6e-06
    float64  7.2e-16  1.3e-15           2.3e-15
    =======  =======  ================  =================

    For larger x the result underflows smoothly to 0, and it is 0 at infinity.  Negative x is not
    supported, because u has a pole at x = -3: callers replace a negative argument before the call.
    """
    return _derivative(0, x)


def erfcx_and_slope(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """erfcx(x) and its first derivative."""
    return _derivative_by_division(0, x), _derivative_by_division(1, x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _derivative(order: int, x: jax.Array) -> jax.Array:
    """The n-th derivative of erfcx, (-u)^n u p_n(t) with p_{n+1} = (n + 1) p_n - (1 - t) p_n'.

    Derivation: u = 1 / (x + 3) has the derivative -u^2 in x, and t = 1 - 6 u has the derivative
    6 u^2 = u (1 - t).  By the product rule the derivative of u^{n+1} p_n(t) is
    -u^{n+2} ((n + 1) p_n - (1 - t) p_n').
    """
    u = 1 / (x + 3)
    return (-u) ** order * u * _polynomial(order, u)


@_derivative.defjvp
def _derivative_jvp(order, primals, tangents):
    """The derivative of order n has the derivative of order n + 1, by the recursion above."""
    (x,), (dx,) = primals, tangents
    return _derivative_by_division(order, x), _derivative_by_division(order + 1, x) * dx


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _derivative_by_division(order: int, x: jax.Array) -> jax.Array:
    """The n-th derivative of erfcx, computed with a division as its last operation.

    XLA computes a division once for all its uses, but repeats a polynomial at each use.
    """
    u = 1 / (x + 3)
    return (-u) ** order * _polynomial(order, u) / (x + 3)


_derivative_by_division.defjvp(_derivative_jvp)


def _polynomial(order: int, u: jax.Array) -> jax.Array:
    """p_n(1 - 6 u) for n = `order`."""
    terms = _derivative_coefficients(order, coefficients(u.dtype))
    return polynomial(terms, 1 - 6 * u)


def _derivative_coefficients(order: int, coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """The coefficients of p_n from the coefficients of p_0, highest power first."""
    for n in range(order):
        powers = range(len(coefficients) - 1, -1, -1)
        slope = (0.0, *(k * c for k, c in zip(powers, coefficients, strict=True)))[:-1]
        times_t = (k * c for k, c in zip(powers, coefficients, strict=True))
        coefficients = tuple(
            (n + 1) * c - d + e for c, d, e in zip(coefficients, slope, times_t, strict=True)
        )
    return coefficients


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
    return log_of_excess(quotient(a - b, b), jnp.log(a) - jnp.log(b))


def log_of_excess(excess: jax.Array, far: jax.Array) -> jax.Array:
    """log(1 + excess), or `far` where that is not near 0."""
    near = jnp.abs(excess) < 0.5
    return fast_where(near, jnp.log1p(fast_where(near, excess, 0.0)), far)


def log_gamma_step(x: jax.Array) -> jax.Array:
    """log Gamma(x + 1/2) - log Gamma(x), without the cancellation of large terms.

    Gamma(x + 1/2) / Gamma(x) is Gamma(x + 17/2) / Gamma(x + 8) times the product over k < 8 of
    (x + k) / (x + k + 1/2); and for large s, log Gamma(s + 1/2) - log Gamma(s) has the asymptotic
    series log(s) / 2 - 1 / (8 s) + 1 / (192 s^3) - 1 / (640 s^5) + 17 / (14336 s^7) - ….
    """
    shifted = x + _STEP_SHIFT
    inverse = 1 / jnp.square(shifted)
    series = polynomial(_STEP_SERIES, inverse)
    ratios = [(x + k) / (x + k + 0.5) for k in range(_STEP_SHIFT)]
    product = functools.reduce(jnp.multiply, ratios)
    return jnp.log(shifted) / 2 + series / shifted + jnp.log(product)


_STEP_SHIFT = 8
#: Coefficients of s^-11, s^-9, …, s^-1.
_STEP_SERIES = (691 / 180224, -31 / 18432, 17 / 14336, -1 / 640, 1 / 192, -1 / 8)


def log1p_beyond_linear(x: jax.Array) -> jax.Array:
    """log(1 + x) - x for |x| < 0.65: log(1 + x) is 2 artanh(r) for r = x / (2 + x)."""
    r = x / (2 + x)
    square = jnp.square(r)
    terms = [2 / (2 * k + 1) for k in range(19 if x.dtype == jnp.float64 else 9, 0, -1)]
    return r * (square * polynomial(terms, square) - x)


def log_quotient_beyond_linear(a: jax.Array, b: jax.Array, excess: jax.Array) -> jax.Array:
    """log(a / b) - (a - b) / b for positive numbers, given a - b with all its digits."""
    ratio = excess / b
    near = jnp.abs(ratio) < 0.5
    of_near = log1p_beyond_linear(jnp.where(near, ratio, 0.0))
    return jnp.where(near, of_near, jnp.log(a) - jnp.log(b) - ratio)


def exp_beyond_linear(x: jax.Array) -> jax.Array:
    """exp(x) - 1 - x for |x| < 0.5."""
    series = jnp.ones_like(x)
    for k in range(18 if x.dtype == jnp.float64 else 10, 2, -1):
        series = 1 + series * x / k
    return jnp.square(x) / 2 * series
