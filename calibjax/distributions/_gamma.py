"""Gamma predictions of positive numbers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from calibjax._numbers import (
    is_positive,
    log_gamma_ratio,
    log_gamma_step,
    log_quotient,
    quantile_from_cdf,
    with_levels,
)
from calibjax._struct import struct, widened
from calibjax.distributions._univariate import Univariate
from calibjax.distributions._univariate._univariate import N_ATOMS

# A target of this size, relative to the others, is as good as 0.
_NEARLY_ZERO = 1e-20


@struct
class Gamma(Univariate):
    """Gamma predictions: the density is proportional to y^(concentration - 1) exp(-rate y).

    Args:
        concentration: shapes a ``[n]``, positive.
        rate: rates ``[n]``, positive, in units of 1 / targets: 1 / scale of SciPy.

    The mean is a / rate and the variance a / rate^2.  Targets are positive numbers of shape
    ``[n]``.

    Expectations of kernels are sums over 64 points, as for every `Univariate` family.  In float64
    the error of E k(Y, y) for a GaussianKernel with a lengthscale of 1.4 | 0.5 standard deviations
    is at most 3e-9 | 3e-9 for a >= 1, 4e-10 | 4e-8 for a = 0.5 and 1e-9 | 2e-5 for a = 0.1.  For
    a < 0.1 it is at most 1e-5 | 2e-4, because the tail is many standard deviations long.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Gamma(jnp.array([4.0, 0.5]), jnp.array([2.0, 1.0]))
        >>> predictions.mean().tolist(), predictions.cdf(jnp.ones(2)).round(3).tolist()
        ([2.0, 0.5], [0.143, 0.843])
    """

    concentration: jax.Array
    rate: jax.Array

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "concentration": ("positive and finite", is_positive(self.concentration)),
            "rate": ("positive and finite", is_positive(self.rate)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "positive and finite", is_positive(targets)

    def mean(self) -> jax.Array:
        """concentration / rate, ``[n]``."""
        p = widened(self)
        return p.concentration / p.rate

    def variance(self) -> jax.Array:
        """concentration / rate^2, ``[n]``."""
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        p = widened(self)
        return jnp.sqrt(p.concentration) / p.rate

    def location(self) -> jax.Array:
        return self.mean()

    def spread(self) -> jax.Array:
        return self.standard_deviation()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, at least the smallest normal number times the mean."""
        p = widened(self)
        size = (*shape, *p.rate.shape)
        # A draw may be too small for its dtype, but hardly its logarithm.
        log_draw = jax.random.loggamma(key, jnp.broadcast_to(p.concentration, size), size)
        log_draw -= jnp.broadcast_to(jnp.log(p.rate), size)
        return jnp.maximum(jnp.exp(log_draw), jnp.finfo(log_draw.dtype).tiny)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        p, targets = widened((self, targets))
        is_valid = targets > 0
        a, mean = p.concentration, p.concentration / p.rate
        y = jnp.where(is_valid, targets, mean)
        # For y = (1 + x) a / rate, rate y - a log(rate y) is a (x - log(1 + x)) + a - a log a.
        exponent = a * ((y - mean) / mean - log_quotient(y, mean))
        value = log_gamma_ratio(a) - exponent - jnp.log(y)
        return jnp.where(is_valid, value, -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        words = "a concentration above 2, so that the score has a variance"
        return words, self.concentration > 2

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        p, targets = widened((self, targets))
        # A product that underflows would be the impossible target 0.
        least = jnp.finfo(targets.dtype).tiny
        x = jnp.where(targets > 0, jnp.maximum(p.rate * targets, least), 0.0)
        return _cdf(p.concentration, x)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``: by bisection on the cdf."""
        p, level = with_levels(self, level)
        standard = Gamma(p.concentration, jnp.ones_like(p.rate))
        return quantile_from_cdf(standard, level, (0.0, jnp.inf)) / p.rate

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """(y - m) (2 F(y) - 1) + (2 y f(y) - 1 / B(1/2, a)) / rate, for the mean m, ``[n]``."""
        p, targets = widened((self, targets))
        sign = 2 * p.cdf(targets) - 1
        density = jnp.exp(p.log_prob(targets) + jnp.log(targets))
        constant = jnp.exp(log_gamma_step(p.concentration)) / math.sqrt(math.pi)
        return (targets - p.mean()) * sign + (2 * density - constant) / p.rate

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        points, weights = gamma_rule(self.concentration)
        return points / self.rate, weights


def _cdf(a: jax.Array, x: jax.Array) -> jax.Array:
    """P(a, x), from the incomplete gamma function or, for large a, where it loses digits, a series.

    With x = a (1 + u) and u - log(1 + u) = v^2 / 2, it is Phi(sqrt(a) v) minus
    phi(sqrt(a) v) / sqrt(a) (1 / u - 1 / v), up to terms of order a^(-3/2) (Temme, 1979).
    """
    is_double = a.dtype == jnp.float64
    is_large = a > (1e5 if is_double else 100)
    few, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, 1e6)
    u = jnp.clip((jnp.where(is_large, x, 1e6) - large) / large, -0.9, 10.0)
    near = jnp.abs(u) < (0.004 if is_double else 0.05)
    small, far = jnp.where(near, u, 0.0), jnp.where(near, 1.0, u)
    of_small = small * jnp.polyval(jnp.asarray(_DEVIANCE_SERIES, u.dtype), small)
    of_far = jnp.sign(far) * jnp.sqrt(2 * (far - jnp.log1p(far)))
    v = jnp.where(near, of_small, of_far)
    first = jnp.where(
        near, jnp.polyval(jnp.asarray(_FIRST_SERIES, u.dtype), v), 1 / far - 1 / of_far
    )
    s = jnp.sqrt(large) * v
    of_large = special.ndtr(s) - jnp.exp(-jnp.square(s) / 2) * first / jnp.sqrt(2 * jnp.pi * large)
    return jnp.where(is_large, of_large, special.gammainc(few, jnp.where(is_large, 1.0, x)))


#: v / u for small u, and 1 / u - 1 / v for small v, highest power first.
_DEVIANCE_SERIES = (1331 / 12960, -73 / 540, 7 / 36, -1 / 3, 1.0)
_FIRST_SERIES = (1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3)


def gamma_rule(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Points and weights of a gamma variable of concentration a and rate 1, ``[64]`` and ``[64]``.

    The points are x(z) = b exp(t(z / sqrt(b))) for an even grid of z, b = max(a, 1) and t of
    `log_of_deviance`.  They are near quantiles at the levels of normal quantiles: from
    x = b + b t + z^2 / 2 follows that the density of x(z), x^(a - 1) exp(-x) / Gamma(a), times
    dx/dz, is exp(-z^2 / 2 + (a - b) t) t'(z / sqrt(b)) times b^(a - 1/2) exp(-b) / Gamma(a).

    For small a most of the probability is near 0, below all points: it is what is missing in the
    sum of the weights, and the weight of one more point.  As the integrand minus its value there
    decreases fast on both sides, the rule is as good as without it.
    """
    # One branch or the other, also at 1, where the derivatives of a maximum are both halves.
    b = jnp.where(a > 1, a, 1.0)
    end = jnp.minimum(5 + b / 2, 7.0 if a.dtype == jnp.float64 else 5.5)
    z = end * jnp.asarray(np.linspace(-1, 1, N_ATOMS - 1), a.dtype)
    v = z / jnp.sqrt(b)
    t = log_of_deviance(v)
    weights = jnp.exp((a - b) * t - jnp.square(z) / 2) * slope_of_deviance(v, t)
    # Above 2 the ends of the grid are far enough, and a sum has more digits than the constant.
    has_rest = a < 2
    few_a, few_b = jnp.where(has_rest, a, 1.0), jnp.where(has_rest, b, 1.0)
    step = 2 * end / (N_ATOMS - 2)
    constant = step * jnp.exp((few_a - 0.5) * jnp.log(few_b) - few_b - special.gammaln(few_a))
    weights = weights * jnp.where(has_rest, constant, 1 / jnp.sum(weights))
    rest = jnp.where(has_rest, 1 - jnp.sum(weights), 0.0)
    points = b * jnp.exp(t)
    nearly_zero = _NEARLY_ZERO * points[:1]
    return jnp.concatenate([nearly_zero, points]), jnp.concatenate([rest[None], weights])


@jax.custom_jvp
def log_of_deviance(v: jax.Array) -> jax.Array:
    """The number t in the direction of v such that exp(t) - 1 - t = v^2 / 2, elementwise."""
    near = jnp.abs(v) < 0.25
    far = jnp.where(near, 1.0, v)
    q = jnp.square(far) / 2
    # The left side of the equation is convex: Newton's steps from outside of 0 … t stay outside.
    start = jnp.where(far > 0, jnp.log1p(q + jnp.abs(far)), -(q + jnp.abs(far)))

    def step(_: int, t: jax.Array) -> jax.Array:
        slope = jnp.expm1(t)
        return t - (slope - t - q) / slope

    of_far = lax.fori_loop(0, 8, step, start)
    square = jnp.where(near, v, 0.0)
    series = functools.reduce(lambda sum, c: sum * square + c, _SERIES, jnp.zeros_like(v))
    return jnp.where(near, v * (1 + square * series), of_far)


@log_of_deviance.defjvp
def _log_of_deviance_jvp(primals, tangents):
    """(exp(t) - 1) dt = v dv."""
    (v,), (dv,) = primals, tangents
    t = log_of_deviance(v)
    return t, slope_of_deviance(v, t) * dv


def slope_of_deviance(v: jax.Array, t: jax.Array) -> jax.Array:
    """The derivative v / (exp(t) - 1) = v / (t + v^2 / 2) of `log_of_deviance`."""
    is_zero = v == 0
    return jnp.where(is_zero, 1.0, v / jnp.where(is_zero, 1.0, t + jnp.square(v) / 2))


#: Coefficients of t(v) = v - v^2 / 6 + v^3 / 36 - …, but the first (Temme, The asymptotic expansion
#: of the incomplete gamma functions, 1979), highest power first.
_SERIES = (
    -281 / 1515591000,
    -571 / 2351462400,
    1 / 204120,
    -139 / 5443200,
    1 / 17010,
    1 / 4320,
    -1 / 270,
    1 / 36,
    -1 / 6,
)
