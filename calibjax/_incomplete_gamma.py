"""The regularised upper incomplete gamma function, also where its argument is large.

jax.scipy.special.gammaincc computes the factor x^a exp(-x) / Gamma(a) from its logarithm, whose
terms cancel: in float32 its error is 5e-4 at a = 1e3 and 3e-3 at a = 1e4, and beyond a = 1e6, where
the loop ends too early as well, its values are infinite or of the wrong sign.  There Temme's
uniform expansion takes over.
"""

import functools

import jax
import jax.numpy as jnp
from jax.scipy import special

# The expansion is better than the other function from here on.
_LARGE = {"float32": 25.0, "float64": 1e4}
# c_1 is a series in eta, highest power first; an error of c_1 counts only 1 / a.
_C1 = (
    7.6491609160811101e-6, -1.8098550334489978e-5, -4.0187757201646091e-7, 2.0576131687242798e-4,
    -9.9022633744855967e-4, 2.6455026455026455e-3, -3.4722222222222222e-3, -1.8518518518518519e-3,
)  # fmt: skip
# The logarithm is a series in s = r / (2 + r) with |s| <= 1/9 there.
_NEAR, _TERMS = 0.2, 8


def gammaincc(a: jax.Array, x: jax.Array) -> jax.Array:
    """Q(a, x) = P(X > x) for a gamma variable X of shape a > 0 and scale 1, elementwise; x >= 0."""
    large = a >= _LARGE[str(a.dtype)]
    of_large = _expansion(jnp.where(large, a, 1e4), jnp.where(large, x, 1e4))
    return jnp.where(
        large, of_large, special.gammaincc(*(jnp.where(large, 1.0, v) for v in (a, x)))
    )


def _expansion(a: jax.Array, x: jax.Array) -> jax.Array:
    """Q(a, x) = erfc(eta sqrt(a / 2)) / 2 + exp(-a eta^2 / 2) (c_0 + c_1 / a) / sqrt(2 pi a).

    With r = x / a - 1, eta has the sign of r and eta^2 = 2 (r - log(1 + r)) = r^2 (1 + r d), where
    d = O(1) comes from the series of the logarithm near r = 0.  Then c_0 = 1 / r - 1 / eta
    = d / (w (1 + w)) for w = sqrt(1 + r d) (Temme, The asymptotic expansion of the incomplete gamma
    functions, SIAM J. Math. Anal. 1979; the omitted c_2 / a^2 is below 0.005 / a^2).
    """
    r = (x - a) / a
    near = jnp.abs(r) < _NEAR
    # log(1 + r) = 2 artanh(s) = 2 s + 2 s^3 (1/3 + s^2 / 5 + s^4 / 7 + ...) with s = r / (2 + r).
    small = jnp.where(near, r, 0.0)
    square = jnp.square(small / (2 + small))
    terms = [1 / (2 * j + 3) for j in reversed(range(_TERMS))]
    series = functools.reduce(lambda sum, c: sum * square + c, terms, jnp.zeros_like(r))
    d_near = -1 / (2 + small) - 4 * series / (2 + small) ** 3
    far = jnp.where(near, 1.0, r)
    # Far below a, at x = 0, the logarithm is infinite, and so is eta.
    d_far = (2 * (far - jnp.log1p(jnp.maximum(far, -1 + 1e-7))) / jnp.square(far) - 1) / far
    d = jnp.where(near, d_near, d_far)
    w = jnp.sqrt(1 + r * d)
    eta = r * w
    # Beyond the radius of the series, at 3.5, and long before, Q is 0 or 1 but for rare tails.
    clipped = jnp.clip(eta, -1, 1)
    c_1 = functools.reduce(lambda sum, c: sum * clipped + c, _C1, jnp.zeros_like(eta))
    correction = d / (w * (1 + w)) + c_1 / a
    exponential = jnp.exp(-a * jnp.square(eta) / 2) / jnp.sqrt(2 * jnp.pi * a)
    return special.erfc(eta * jnp.sqrt(a / 2)) / 2 + exponential * correction
