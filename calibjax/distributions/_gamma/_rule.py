"""Points and weights of a gamma variable, and the function of the deviance that they follow."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from calibjax.distributions._univariate._univariate import N_ATOMS

# A target of this size, relative to the others, is as good as 0.
_NEARLY_ZERO = 1e-20


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
