"""Beta predictions of numbers between 0 and 1."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import betainc

from calibjax._inversion import quantile_from_cdf, with_levels
from calibjax._numerics import is_positive, log_gamma_ratio, log_gamma_step
from calibjax._struct import struct, widened
from calibjax.distributions._univariate import Univariate
from calibjax.distributions._univariate._univariate import N_ATOMS

# A target of this size is as good as 0.
_NEARLY_ZERO = 1e-30


@struct
class Beta(Univariate):
    """Beta predictions: the density is proportional to y^(a - 1) (1 - y)^(b - 1).

    Args:
        concentration1: a ``[n]``, positive.
        concentration0: b ``[n]``, positive.

    The mean is a / (a + b) and the variance a b / ((a + b)^2 (a + b + 1)).  Targets are numbers
    between 0 and 1 of shape ``[n]``.

    Expectations of kernels are sums over 64 points, as for every `Univariate` family.  In float64
    the error of E k(Y, y) for a GaussianKernel of 1.4 | 0.5 standard deviations is at most
    2e-9 | 2e-9, also for small a and b, unless one of them is below 0.5 and the other one is much
    larger, as for `Gamma`.

    `cdf` has no derivative in a and b.  It is NaN where
    `jax.scipy.special.betainc` has no digits left, for a + b above 3000 in float32 and 10^6 in
    float64.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Beta(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]))
        >>> predictions.mean().tolist(), predictions.cdf(jnp.array([0.5, 0.5])).round(3).tolist()
        ([0.5, 0.75], [0.5, 0.125])
    """

    concentration1: jax.Array
    concentration0: jax.Array

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "concentration1": ("positive and finite", is_positive(self.concentration1)),
            "concentration0": ("positive and finite", is_positive(self.concentration0)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "between 0 and 1", (targets > 0) & (targets < 1)

    def mean(self) -> jax.Array:
        """a / (a + b), ``[n]``."""
        p = widened(self)
        return p.concentration1 / (p.concentration1 + p.concentration0)

    def variance(self) -> jax.Array:
        """a b / ((a + b)^2 (a + b + 1)), ``[n]``."""
        p = widened(self)
        total = p.concentration1 + p.concentration0
        return (p.concentration1 / total) * (p.concentration0 / total) / (total + 1)

    def location(self) -> jax.Array:
        return self.mean()

    def spread(self) -> jax.Array:
        return self.standard_deviation()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, neither 0 nor 1."""
        p = widened(self)
        size = (*shape, *p.concentration1.shape)
        a, b = (jnp.broadcast_to(x, size) for x in (p.concentration1, p.concentration0))
        draws = jax.random.beta(key, a, b, size)
        limits = jnp.finfo(draws.dtype)
        return jnp.clip(draws, limits.tiny, 1 - limits.epsneg)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets outside of (0, 1)."""
        p, targets = widened((self, targets))
        a, b, mean = p.concentration1, p.concentration0, p.mean()
        is_valid = (targets > 0) & (targets < 1)
        y = jnp.where(is_valid, targets, mean)
        # With y - mean in both logarithms their linear terms cancel, as they should.
        excess = y - mean
        log_ratio1 = _log_ratio(excess / mean, jnp.log(y) - jnp.log(mean))
        log_complement = jnp.log(b) - jnp.log(a + b)
        log_ratio0 = _log_ratio(-excess * ((a + b) / b), jnp.log1p(-y) - log_complement)
        constant = log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(a + b)
        value = constant + a * log_ratio1 + b * log_ratio0 - jnp.log(y) - jnp.log1p(-y)
        return jnp.where(is_valid, value, -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        words = "both concentrations above 2, so that the score has a variance"
        return words, (self.concentration1 > 2) & (self.concentration0 > 2)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        p, targets = widened((self, targets))
        a, b = p.concentration1, p.concentration0
        limit = 1e6 if targets.dtype == jnp.float64 else 3000.0
        return jnp.where(a + b <= limit, betainc(a, b, jnp.clip(targets, 0.0, 1.0)), jnp.nan)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``: by bisection on the cdf."""
        return quantile_from_cdf(*with_levels(self, level), (0.0, 1.0))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """(y - m) (2 F(y) - 1) + 2 (y (1 - y) f(y) - B(2 a, 2 b) / B(a, b)^2) / (a + b), ``[n]``.

        m is the mean, and f the density.
        """
        p, targets = widened((self, targets))
        a, b = p.concentration1, p.concentration0
        sign = 2 * p.cdf(targets) - 1
        density = jnp.exp(p.log_prob(targets) + jnp.log(targets) + jnp.log1p(-targets))
        # By the duplication formula Gamma(2 x) = 2^(2 x - 1) Gamma(x) Gamma(x + 1/2) / sqrt(pi).
        log_constant = log_gamma_step(a) + log_gamma_step(b) - log_gamma_step(a + b)
        constant = jnp.exp(log_constant) / math.sqrt(4 * math.pi)
        return (targets - p.mean()) * sign + 2 * (density - constant) / (a + b)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        return beta_rule(self.concentration1, self.concentration0)


def _log_ratio(excess: jax.Array, far: jax.Array) -> jax.Array:
    """log(1 + excess), or `far` where that is not near 0."""
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, excess, 0.0)), far)


def beta_rule(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Points and weights of a beta variable, ``[64]`` and ``[64]``.

    With c = max(a, 1), d = max(b, 1) and m = c / (c + d) the points x(z) solve

        c log(m / x) + d log((1 - m) / (1 - x)) = z^2 / 2, and x > m where z > 0,

    for an even grid of z.  They are near quantiles at the levels of normal quantiles z, and the
    density of x(z) times dx/dz is exp(-z^2 / 2) x^(a - c) (1 - x)^(b - d) z / ((c + d) (x - m))
    times a constant.

    For small a or b much of the probability is near 0 or 1, outside of all points.  Two more points
    there get the weights for which the sum of the weights and the mean are right.
    """
    # One branch or the other, also at 1, where the derivatives of a maximum are both halves.
    c, d = jnp.where(a > 1, a, 1.0), jnp.where(b > 1, b, 1.0)
    end = jnp.minimum(5 + jnp.minimum(c, d) / 2, 7.0 if a.dtype == jnp.float64 else 5.5)
    # An even number of points, so that none is 0.
    z = end * jnp.asarray(np.linspace(-1, 1, N_ATOMS - 2), a.dtype)
    t = logit_of_deviance(z, jnp.broadcast_to(c, z.shape), jnp.broadcast_to(d, z.shape))
    log_x, log_rest, slope = _ratios_and_slope(t, c, d)
    log_x, log_rest = log_x + jnp.log(c / (c + d)), log_rest + jnp.log(d / (c + d))
    x, rest = jnp.exp(log_x), jnp.exp(log_rest)
    exponent = (a - c) * log_x + (b - d) * log_rest - jnp.square(z) / 2
    weights = jnp.exp(exponent) * z / slope
    # Above 2 the ends of the grid are far enough, and a sum has more digits than the constant.
    has_rest = jnp.minimum(a, b) < 2
    step = 2 * end / (N_ATOMS - 3)
    weights = weights * jnp.where(has_rest, step * _constant(a, b, c, d), 1 / jnp.sum(weights))
    at_one = a / (a + b) - jnp.sum(weights * x)
    at_zero = b / (a + b) - jnp.sum(weights * rest)
    zero, one = (
        jnp.full(1, _NEARLY_ZERO, x.dtype),
        jnp.full(1, 1 - jnp.finfo(x.dtype).epsneg, x.dtype),
    )
    of_zero, of_one = (jnp.where(has_rest, rest, 0.0)[None] for rest in (at_zero, at_one))
    return jnp.concatenate([zero, x, one]), jnp.concatenate([of_zero, weights, of_one])


def _constant(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    """m^c (1 - m)^d / B(a, b), from numbers that are not much larger than its logarithm."""
    n, more = a + b, (c - a) + (d - b)
    # c log c - a log a and so on: c and d are a and b, or 1.
    of_parts = sum(jnp.where(x > 1, 0.0, -x * jnp.log(x)) for x in (a, b))
    part = more / (n + more)
    of_sum = more * jnp.log(n + more) - n * _log_ratio(-part, jnp.log(n) - jnp.log(n + more))
    ratio = log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(n)
    return jnp.exp(ratio + of_parts - of_sum)


@jax.custom_jvp
def logit_of_deviance(z: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    """log(x / (1 - x)) - log(c / d) for the x in `beta_rule`, elementwise, for z other than 0."""
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


def _ratios_and_slope(
    t: jax.Array, c: jax.Array, d: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log(x / m), log((1 - x) / (1 - m)), and the derivative (c + d) (x - m) of the deviance in t.

    They are written for m <= 1/2.  Otherwise they are taken of 1 - x and 1 - m, with -t for t.
    """
    is_mirrored = c > d
    part = jnp.minimum(c, d) / (c + d)
    mirrored_t = jnp.where(is_mirrored, -t, t)
    growth = jnp.expm1(mirrored_t)
    log_larger = -jnp.log1p(part * growth)
    log_smaller = mirrored_t + log_larger
    slope = c * (d / (c + d)) * growth / (1 + part * growth)
    return (
        jnp.where(is_mirrored, log_larger, log_smaller),
        jnp.where(is_mirrored, log_smaller, log_larger),
        jnp.where(is_mirrored, -slope, slope),
    )
