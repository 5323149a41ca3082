r"""Both tails of a gamma variable of rate 1, by Gauss' rule in its logarithm.

In t = log(x / a) the density is exp(-D(t)) a^a exp(-a) / Gamma(a), where the deviance

.. math::
    D(t) = a (e^t - 1 - t)

is convex.  A tail is the integral from t outwards, and ends where the density has fallen by as much
as the dtype can tell, by exp(-20) or exp(-40).
"""

import jax
import jax.numpy as jnp

from calibjax._numbers import (
    exp_beyond_linear,
    log_gamma_ratio,
    log_quotient,
    mean_by_gauss,
)
from calibjax.distributions._gamma._rule import log_of_deviance

_NODES = {"float32": 24, "float64": 64}
_END = {"float32": 20.0, "float64": 40.0}
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
    tail = jnp.clip(tail, 0.0, 1.0)
    lower = jnp.where(is_lower, tail, 1 - tail)
    upper = jnp.where(is_lower, 1 - tail, tail)
    at_zero, at_infinity = x < limits.tiny, x > limits.max
    return (
        jnp.where(inside, lower, jnp.where(at_infinity, 1.0, jnp.where(at_zero, 0.0, jnp.nan))),
        jnp.where(inside, upper, jnp.where(at_infinity, 0.0, jnp.where(at_zero, 1.0, jnp.nan))),
    )


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
    t = log_quotient(x, a)
    deviance = _deviance(t, a)
    # So far out the probability is 0, and the end of the integral could not be told from its start.
    is_far = deviance > _NONE
    t, deviance = jnp.where(is_far, 0.0, t), jnp.where(is_far, 0.0, deviance)
    root = jnp.sqrt(2 * (deviance + _END[t.dtype.name]) / a)
    end = log_of_deviance(jnp.where(is_lower, -root, root))

    def density(share: jax.Array) -> jax.Array:
        place = t[None] + (end - t)[None] * share
        return jnp.exp(deviance[None] - _deviance(place, a[None]))

    length = jnp.where(is_lower, t - end, end - t)
    tail = (
        length
        * mean_by_gauss(density, _NODES[t.dtype.name], t)
        * jnp.exp(log_gamma_ratio(a) - deviance)
    )
    return jnp.where(is_far, 0.0, tail)


def _deviance(t: jax.Array, a: jax.Array) -> jax.Array:
    """D(t), with all its digits near 0 and far away."""
    is_near = jnp.abs(t) < _NEAR
    near, far = jnp.where(is_near, t, 0.0), jnp.where(is_near, 0.0, jnp.minimum(t, _FAR))
    return a * jnp.where(is_near, exp_beyond_linear(near), jnp.expm1(far) - far)
