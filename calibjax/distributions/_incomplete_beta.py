r"""The density and both tails of a beta variable.

The tails are integrals by Gauss' rule in the log odds of the variable.

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
from jax import lax

from calibjax._numbers.special_functions import (
    exp_beyond_linear,
    log1p_beyond_linear,
    log_gamma_ratio,
    log_of_excess,
)
from calibjax.distributions._incomplete_gamma import both_tails, outer_tail


def log_odds_density(a: jax.Array, b: jax.Array, y: jax.Array) -> jax.Array:
    """log(y^a (1 - y)^b / B(a, b)), the log density of log(Y / (1 - Y)), at y in (0, 1)."""
    log_ratio1, log_ratio0 = log_ratios(a, b, y)
    return log_density_at_mean(a, b) + a * log_ratio1 + b * log_ratio0


def log_density_at_mean(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(m^a (1 - m)^b / B(a, b)) for the mean m = a / (a + b)."""
    return log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(a + b)


def log_ratios(a: jax.Array, b: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log(y / m) and log((1 - y) / (1 - m)) for the mean m = a / (a + b).

    With y - m in both logarithms their linear terms cancel in a sum with the factors a and b, as
    they should.
    """
    total = a + b
    # The smaller one of m and 1 - m has more digits.
    excess = jnp.where(a < b, y - a / total, b / total - (1 - y))
    log_mean, log_complement = jnp.log(a) - jnp.log(total), jnp.log(b) - jnp.log(total)
    return (
        log_of_excess(excess * (total / a), jnp.log(y) - log_mean),
        log_of_excess(-excess * (total / b), _log_of_rest(y) - log_complement),
    )


def _log_of_rest(y: jax.Array) -> jax.Array:
    """log(1 - y) for y in (0, 1)."""
    # XLA's log1p of a double on CPU has an error of up to 3e-14 between -0.414 and -0.35.
    is_small = y < 1 / 3
    of_small = jnp.log1p(-jnp.where(is_small, y, 0.0))
    return jnp.where(is_small, of_small, jnp.log(1 - jnp.where(is_small, 0.0, y)))


# exp(t) beyond it is infinite compared with 1.
_FAR = 80.0


@jax.custom_jvp
def logit_of_deviance(z: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    """log(x / (1 - x)) - log(c / d) for the x where the deviance is z^2 / 2, elementwise.

    With m = c / (c + d), c log(m / x) + d log((1 - m) / (1 - x)) = z^2 / 2, and x > m where z > 0;
    z is not 0.
    """
    q = jnp.square(z) / 2
    start = z * jnp.sqrt(1 / c + 1 / d) + jnp.where(z > 0, q / d, -q / c)

    # The deviance is convex in the logit: Newton's steps soon stay on one side.
    def step(_: int, t: jax.Array) -> jax.Array:
        log_x, log_rest, slope = _ratios_and_slope(t, c, d)
        return t - (-c * log_x - d * log_rest - q) / slope

    return lax.fori_loop(0, 12, step, start)


@logit_of_deviance.defjvp
def _logit_of_deviance_jvp(primals, tangents):
    """slope (dt + dc / c - dd / d) = z dz + log(x / m) dc + log((1 - x) / (1 - m)) dd."""
    (z, c, d), (dz, dc, dd) = primals, tangents
    t = logit_of_deviance(z, c, d)
    log_x, log_rest, slope = _ratios_and_slope(t, c, d)
    return t, z / slope * dz + (log_x / slope - 1 / c) * dc + (log_rest / slope + 1 / d) * dd


def smaller_part(a: jax.Array, b: jax.Array) -> jax.Array:
    """min(a, b) / (a + b); where they are equal the derivative is that of a, not the mean of both.

    The function that uses it is mirrored for a > b, and only their combination is symmetric.
    """
    return jnp.where(a > b, b, a) / (a + b)


def log_growth(part: jax.Array, t: jax.Array) -> jax.Array:
    """log(1 + part (exp(t) - 1)), also where the exponential overflows."""
    near = jnp.log1p(part * jnp.expm1(jnp.minimum(t, _FAR)))
    return jnp.where(t < _FAR, near, t + jnp.log(part))


def _ratios_and_slope(
    t: jax.Array, c: jax.Array, d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log(x / m), log((1 - x) / (1 - m)), and the derivative (c + d) (x - m) of the deviance in t.

    They are written for m <= 1/2.  Otherwise they are taken of 1 - x and 1 - m, with -t for t.
    """
    is_mirrored = c > d
    part = smaller_part(c, d)
    mirrored_t = jnp.where(is_mirrored, -t, t)
    growth = jnp.expm1(jnp.minimum(mirrored_t, _FAR))
    log_larger = -log_growth(part, mirrored_t)
    log_smaller = mirrored_t + log_larger
    slope = c * (d / (c + d)) * growth / (1 + part * growth)
    return (
        jnp.where(is_mirrored, log_larger, log_smaller),
        jnp.where(is_mirrored, log_smaller, log_larger),
        jnp.where(is_mirrored, -slope, slope),
    )


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
    raised = jnp.where(is_raised & is_lower, a + 1, a), jnp.where(is_raised & ~is_lower, b + 1, b)
    tail = _outer_tail(*raised, x, is_lower)
    of_parts = jnp.exp(log_odds_density(a, b, x)) / concentration
    tail += jnp.where(is_raised, of_parts, 0.0)
    return both_tails(tail, is_lower, inside, y >= 1, y < tiny)


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
    t, at_mean = log_ratio1 - log_ratio0, log_density_at_mean(a, b)
    return outer_tail(t, is_lower, (a, b), _deviance, logit_of_deviance, at_mean)


def _deviance(t: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """D(t), with all its digits near 0 and far away."""
    n, part = a + b, smaller_part(a, b)
    u = jnp.where(a > b, -t, t)
    is_near = jnp.abs(u) < _NEAR
    near, far = jnp.where(is_near, u, 0.0), jnp.where(is_near, 0.0, u)
    of_near = log1p_beyond_linear(part * jnp.expm1(near)) + part * exp_beyond_linear(near)
    of_far = log_growth(part, far) - part * far
    return n * jnp.where(is_near, of_near, of_far)
