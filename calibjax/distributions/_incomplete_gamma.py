r"""Both tails of a gamma variable of rate 1, and points and weights for expectations.

The tails are integrals by Gauss' rule in the logarithm of the variable.

In t = log(x / a) the density is exp(-D(t)) a^a exp(-a) / Gamma(a), where the deviance

.. math::
    D(t) = a (e^t - 1 - t)

is convex.  A tail is the integral from t outwards, and ends where the density has fallen by as much
as the dtype can tell, by exp(-20) or exp(-40).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from calibjax._numbers.arithmetic import mean_by_gauss
from calibjax._numbers.derivatives import polynomial
from calibjax._numbers.special_functions import exp_beyond_linear, log_gamma_ratio, log_quotient
from calibjax.distributions._univariate import N_ATOMS

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
    series = polynomial(_SERIES, square)
    return jnp.where(near, v * (1 + square * series), of_far)


# (exp(t) - 1) dt = v dv.
log_of_deviance.defjvps(lambda dv, t, v: slope_of_deviance(v, t) * dv)


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


#: Nodes of Gauss' rule for an integral that ends where the integrand has fallen by exp(-END).
NODES = {"float32": 24, "float64": 64}
END = {"float32": 20.0, "float64": 40.0}
# exp(-NONE) is 0, also in float64 and times any density.
_NONE = 1000.0
# Where a function less its linear part is a series.
_NEAR = 0.5
# exp(t) beyond it is infinite compared with 1, and would overflow.
_FAR = 80.0


@jax.custom_jvp
def gamma_tails(a: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(X <= x) and P(X > x) for the concentration a, elementwise; each has all its digits.

    The digits of a tail that is the larger one are those of 1 minus the other.
    """
    limits = jnp.finfo(x.dtype)
    inside = (x >= limits.tiny) & (x <= limits.max)
    y = jnp.where(inside, x, a)
    is_lower = y < a
    # The lower tail of a concentration below 1 is long in t.  By parts, with F for a + 1,
    # F(a, x) = F(a + 1, x) + x^a exp(-x) / Gamma(a + 1).
    is_raised = is_lower & (a < 1)
    tail = _outer_tail(jnp.where(is_raised, a + 1, a), y, is_lower)
    tail += jnp.where(is_raised, jnp.exp(_log_density(a, y)) / a, 0.0)
    return both_tails(tail, is_lower, inside, x > limits.max, x < limits.tiny)


@gamma_tails.defjvp
def _gamma_tails_jvp(primals, tangents):
    """The derivative in x is the density."""
    (a, x), (da, dx) = primals, tangents
    (lower, upper), (of_lower, of_upper) = jax.jvp(lambda a: gamma_tails.fun(a, x), (a,), (da,))
    inside = (x > 0) & jnp.isfinite(x)
    y = jnp.where(inside, x, a)
    change = jnp.where(inside, jnp.exp(_log_density(a, y) - jnp.log(y)), 0.0) * dx
    return (lower, upper), (of_lower + change, of_upper - change)


def _log_density(a: jax.Array, x: jax.Array) -> jax.Array:
    """log(x^a exp(-x) / Gamma(a)), the log density of log X."""
    return log_gamma_ratio(a) - _deviance(log_quotient(x, a), a)


def _outer_tail(a: jax.Array, x: jax.Array, is_lower: jax.Array) -> jax.Array:
    """P(X <= x) where x is below a, and P(X > x) where it is not; the lower one for a >= 1."""
    functions = _deviance, lambda z, _: log_of_deviance(z)
    return outer_tail(log_quotient(x, a), is_lower, (a,), *functions, log_gamma_ratio(a), unit=a)


def both_tails(
    tail: jax.Array,
    is_lower: jax.Array,
    inside: jax.Array,
    is_above: jax.Array,
    is_below: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """P(X <= x) and P(X > x), of which `tail` is one, for x inside of the support or beside it."""
    tail = jnp.clip(tail, 0.0, 1.0)
    lower, upper = (jnp.where(x, tail, 1 - tail) for x in (is_lower, ~is_lower))
    return (
        jnp.where(inside, lower, jnp.where(is_above, 1.0, jnp.where(is_below, 0.0, jnp.nan))),
        jnp.where(inside, upper, jnp.where(is_above, 0.0, jnp.where(is_below, 1.0, jnp.nan))),
    )


def outer_tail(
    t: jax.Array,
    is_lower: jax.Array,
    parameters: tuple[jax.Array, ...],
    deviance_at: Callable[..., jax.Array],
    end_at: Callable[..., jax.Array],
    log_density_at_mean: jax.Array,
    unit: jax.Array | float = 1.0,
) -> jax.Array:
    """The integral of the density, exp(-D) times that at the mean, from t outwards.

    `deviance_at` is D of a number and the parameters, and `end_at` the number at which D is half of
    the square of its first argument, in units of `unit`.
    """
    deviance = deviance_at(t, *parameters)
    # So far out the probability is 0, and the end of the integral could not be told from its start.
    is_far = deviance > _NONE
    t, deviance = jnp.where(is_far, 0.0, t), jnp.where(is_far, 0.0, deviance)
    root = jnp.sqrt(2 * (deviance + END[t.dtype.name]) / unit)
    end = end_at(jnp.where(is_lower, -root, root), *parameters)

    def density(share: jax.Array) -> jax.Array:
        point = t[None] + (end - t)[None] * share
        return jnp.exp(deviance[None] - deviance_at(point, *(x[None] for x in parameters)))

    tail = jnp.where(is_lower, t - end, end - t) * mean_by_gauss(density, NODES[t.dtype.name], t)
    return jnp.where(is_far, 0.0, tail * jnp.exp(log_density_at_mean - deviance))


def _deviance(t: jax.Array, a: jax.Array) -> jax.Array:
    """D(t), with all its digits near 0 and far away."""
    is_near = jnp.abs(t) < _NEAR
    near, far = jnp.where(is_near, t, 0.0), jnp.where(is_near, 0.0, jnp.minimum(t, _FAR))
    return a * jnp.where(is_near, exp_beyond_linear(near), jnp.expm1(far) - far)
