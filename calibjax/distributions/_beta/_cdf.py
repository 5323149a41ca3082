r"""The cdf of a beta variable, by Gauss' rule in its log odds.

In t = log(x / (1 - x)) - log(m / (1 - m)) with the mean m = a / (a + b) the density is
exp(-D(t)) m^a (1 - m)^b / B(a, b), where the deviance

.. math::
    D(t) = a \log(m / x) + b \log((1 - m) / (1 - x)) = n (\log(1 + p (e^u - 1)) - p u)

is convex, for n = a + b, p = min(a, b) / n and u = t, or -t if a > b.  A tail is the integral from
t outwards, and ends where D is larger by 40.
"""

import jax
import jax.numpy as jnp

from calibjax._numbers import mean_by_gauss
from calibjax.distributions._beta._rule import (
    log_density_at_mean,
    log_growth,
    log_odds_density,
    log_ratios,
    logit_of_deviance,
    smaller_part,
)

_NODES, _END = 64, 40.0
# exp(-NONE) is 0, also in float64 and times any density at the mean.
_NONE = 1000.0
# Where a function less its linear part is a series.
_NEAR = 0.5


@jax.custom_jvp
def beta_cdf(a: jax.Array, b: jax.Array, y: jax.Array) -> jax.Array:
    """P(Y <= y) for the concentrations a and b, elementwise."""
    tiny = jnp.finfo(y.dtype).tiny
    inside = (y >= tiny) & (y < 1)
    x = jnp.where(inside, y, 0.5)
    # Tails of concentrations below 1 are long.  With F for a + 1 and b + 1, integration by parts:
    # F(a, b) = F(a + 1, b) + x^a (1 - x)^b / (a B(a, b)), and likewise with a minus for b.
    small_a, small_b = a < 1, b < 1
    larger_a, larger_b = jnp.where(small_a, a + 1, a), jnp.where(small_b, b + 1, b)
    value = _cdf_of_large(larger_a, larger_b, x)
    value -= jnp.where(small_b, jnp.exp(log_odds_density(larger_a, b, x)) / b, 0.0)
    value += jnp.where(small_a, jnp.exp(log_odds_density(a, b, x)) / a, 0.0)
    outside = jnp.where(y >= 1, 1.0, jnp.where(y < tiny, 0.0, jnp.nan))
    return jnp.where(inside, jnp.clip(value, 0.0, 1.0), outside)


@beta_cdf.defjvp
def _beta_cdf_jvp(primals, tangents):
    """The derivative in y is the density."""
    (a, b, y), (da, db, dy) = primals, tangents
    value, change = jax.jvp(lambda a, b: beta_cdf.fun(a, b, y), (a, b), (da, db))
    inside = (y > 0) & (y < 1)
    x = jnp.where(inside, y, 0.5)
    density = jnp.exp(log_odds_density(a, b, x) - jnp.log(x) - jnp.log1p(-x))
    return value, change + jnp.where(inside, density, 0.0) * dy


def _cdf_of_large(a: jax.Array, b: jax.Array, x: jax.Array) -> jax.Array:
    """The cdf for concentrations of at least 1."""
    log_ratio1, log_ratio0 = log_ratios(a, b, x)
    t = log_ratio1 - log_ratio0
    is_lower = t < 0
    deviance = _deviance(t, a, b)
    # So far out the probability is 0, and the end of the integral could not be told from its start.
    is_far = deviance > _NONE
    t, deviance = jnp.where(is_far, 0.0, t), jnp.where(is_far, 0.0, deviance)
    root = jnp.sqrt(2 * (deviance + _END))
    end = logit_of_deviance(jnp.where(is_lower, -root, root), a, b)

    def density(share: jax.Array) -> jax.Array:
        place = t[None] + (end - t)[None] * share
        return jnp.exp(deviance[None] - _deviance(place, a[None], b[None]))

    mean = mean_by_gauss(density, _NODES, t)
    tail = jnp.where(is_lower, t - end, end - t) * mean
    tail *= jnp.exp(log_density_at_mean(a, b) - deviance)
    tail = jnp.where(is_far, 0.0, tail)
    return jnp.where(is_lower, tail, 1 - tail)


def _deviance(t: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """D(t), with all its digits near 0 and far away."""
    n, part = a + b, smaller_part(a, b)
    u = jnp.where(a > b, -t, t)
    is_near = jnp.abs(u) < _NEAR
    near, far = jnp.where(is_near, u, 0.0), jnp.where(is_near, 0.0, u)
    of_near = _log1p_beyond_linear(part * jnp.expm1(near)) + part * _exp_beyond_linear(near)
    of_far = log_growth(part, far) - part * far
    return n * jnp.where(is_near, of_near, of_far)


def _log1p_beyond_linear(x: jax.Array) -> jax.Array:
    """log(1 + x) - x for |x| < 0.65: log(1 + x) is 2 artanh(r) for r = x / (2 + x)."""
    r = x / (2 + x)
    square = jnp.square(r)
    series = jnp.zeros_like(x)
    for k in range(19 if x.dtype == jnp.float64 else 9, 0, -1):
        series = series * square + 2 / (2 * k + 1)
    return r * (square * series - x)


def _exp_beyond_linear(x: jax.Array) -> jax.Array:
    """exp(x) - 1 - x for |x| < 0.5."""
    series = jnp.ones_like(x)
    for k in range(18 if x.dtype == jnp.float64 else 10, 2, -1):
        series = 1 + series * x / k
    return jnp.square(x) / 2 * series
