r"""Both tails of a beta variable, by Gauss' rule in its log odds.

In t = log(x / (1 - x)) - log(m / (1 - m)) with the mean m = a / (a + b) the density is
exp(-D(t)) m^a (1 - m)^b / B(a, b), where the deviance

.. math::
    D(t) = a \log(m / x) + b \log((1 - m) / (1 - x)) = n (\log(1 + p (e^u - 1)) - p u)

is convex, for n = a + b, p = min(a, b) / n and u = t, or -t if a > b.  A tail is the integral from
t outwards, and ends where the density has fallen by as much as the dtype can tell, by exp(-20) or
exp(-40).
"""

import jax
import jax.numpy as jnp

from calibjax._numbers import exp_beyond_linear, log1p_beyond_linear, mean_by_gauss
from calibjax.distributions._beta._rule import (
    log_density_at_mean,
    log_growth,
    log_odds_density,
    log_ratios,
    logit_of_deviance,
    smaller_part,
)

_NODES = {"float32": 24, "float64": 64}
_END = {"float32": 20.0, "float64": 40.0}
# exp(-NONE) is 0, also in float64 and times any density at the mean.
_NONE = 1000.0
# Where a function less its linear part is a series.
_NEAR = 0.5


@jax.custom_jvp
def beta_tails(a: jax.Array, b: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(Y <= y) and P(Y > y) for the concentrations a and b, elementwise; each has all its digits.

    The digits of a tail that is the larger one are those of 1 minus the other.
    """
    tiny = jnp.finfo(y.dtype).tiny
    inside = (y >= tiny) & (y < 1)
    x = jnp.where(inside, y, 0.5)
    log_ratio1, log_ratio0 = log_ratios(a, b, x)
    is_lower = log_ratio1 < log_ratio0
    # The tail of a concentration below 1 is long.  By parts, with F for a + 1 and b + 1,
    # F(a, b) = F(a + 1, b) + x^a (1 - x)^b / (a B(a, b)), and likewise for b and 1 - F.
    concentration = jnp.where(is_lower, a, b)
    is_raised = concentration < 1
    tail = _outer_tail(
        jnp.where(is_raised & is_lower, a + 1, a),
        jnp.where(is_raised & ~is_lower, b + 1, b),
        x,
        is_lower,
    )
    of_parts = jnp.exp(log_odds_density(a, b, x)) / concentration
    tail = jnp.clip(tail + jnp.where(is_raised, of_parts, 0.0), 0.0, 1.0)
    lower = jnp.where(is_lower, tail, 1 - tail)
    upper = jnp.where(is_lower, 1 - tail, tail)
    above, below = y >= 1, y < tiny
    return (
        jnp.where(inside, lower, jnp.where(above, 1.0, jnp.where(below, 0.0, jnp.nan))),
        jnp.where(inside, upper, jnp.where(above, 0.0, jnp.where(below, 1.0, jnp.nan))),
    )


@beta_tails.defjvp
def _beta_tails_jvp(primals, tangents):
    """The derivative in y is the density."""
    (a, b, y), (da, db, dy) = primals, tangents
    values, (of_lower, of_upper) = jax.jvp(lambda a, b: beta_tails.fun(a, b, y), (a, b), (da, db))
    inside = (y > 0) & (y < 1)
    x = jnp.where(inside, y, 0.5)
    density = jnp.exp(log_odds_density(a, b, x) - jnp.log(x) - jnp.log1p(-x))
    change = jnp.where(inside, density, 0.0) * dy
    return values, (of_lower + change, of_upper - change)


def _outer_tail(a: jax.Array, b: jax.Array, x: jax.Array, is_lower: jax.Array) -> jax.Array:
    """P(Y <= x) for x below the mean and a >= 1, or P(Y > x) for x above it and b >= 1."""
    log_ratio1, log_ratio0 = log_ratios(a, b, x)
    t = log_ratio1 - log_ratio0
    deviance = _deviance(t, a, b)
    # So far out the probability is 0, and the end of the integral could not be told from its start.
    is_far = deviance > _NONE
    t, deviance = jnp.where(is_far, 0.0, t), jnp.where(is_far, 0.0, deviance)
    root = jnp.sqrt(2 * (deviance + _END[t.dtype.name]))
    end = logit_of_deviance(jnp.where(is_lower, -root, root), a, b)

    def density(share: jax.Array) -> jax.Array:
        place = t[None] + (end - t)[None] * share
        return jnp.exp(deviance[None] - _deviance(place, a[None], b[None]))

    tail = jnp.where(is_lower, t - end, end - t) * mean_by_gauss(density, _NODES[t.dtype.name], t)
    tail *= jnp.exp(log_density_at_mean(a, b) - deviance)
    return jnp.where(is_far, 0.0, tail)


def _deviance(t: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """D(t), with all its digits near 0 and far away."""
    n, part = a + b, smaller_part(a, b)
    u = jnp.where(a > b, -t, t)
    is_near = jnp.abs(u) < _NEAR
    near, far = jnp.where(is_near, u, 0.0), jnp.where(is_near, 0.0, u)
    of_near = log1p_beyond_linear(part * jnp.expm1(near)) + part * exp_beyond_linear(near)
    of_far = log_growth(part, far) - part * far
    return n * jnp.where(is_near, of_near, of_far)
