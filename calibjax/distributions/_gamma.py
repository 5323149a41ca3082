"""Gamma predictions of positive numbers."""

import math

import jax
import jax.numpy as jnp

from calibjax._numbers import (
    is_positive,
    log_gamma_ratio,
    log_gamma_step,
    log_quotient,
    quantile_from_cdf,
    quotient,
    with_levels,
)
from calibjax._struct import struct, widened
from calibjax.distributions._incomplete_gamma import gamma_rule, gamma_tails
from calibjax.distributions._univariate import Univariate


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
        return quotient(p.concentration, p.rate)

    def variance(self) -> jax.Array:
        """concentration / rate^2, ``[n]``."""
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        p = widened(self)
        return quotient(jnp.sqrt(p.concentration), p.rate)

    def location(self) -> jax.Array:
        return self.mean()

    def spread(self) -> jax.Array:
        return self.standard_deviation()

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, at least the smallest normal number times the mean."""
        p = widened(self)
        size = (*shape, *p.rate.shape)
        # A draw may be too small for its dtype, but hardly its logarithm.
        concentration = jnp.broadcast_to(p.concentration, size)
        log_draw = jax.random.loggamma(key, concentration, size, concentration.dtype)
        log_draw -= jnp.broadcast_to(jnp.log(p.rate), size)
        return jnp.maximum(jnp.exp(log_draw), jnp.finfo(log_draw.dtype).tiny)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        p, targets = widened((self, targets))
        is_valid = targets > 0
        a, mean = p.concentration, quotient(p.concentration, p.rate)
        y = jnp.where(is_valid, targets, mean)
        # For y = (1 + x) a / rate, rate y - a log(rate y) is a (x - log(1 + x)) + a - a log a.
        exponent = a * (quotient(y - mean, mean) - log_quotient(y, mean))
        value = log_gamma_ratio(a) - exponent - jnp.log(y)
        return jnp.where(is_valid, value, -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        words = "a concentration above 2, so that the score has a variance"
        return words, self.concentration > 2

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        return self.tails(targets)[0]

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets), ``[n]``."""
        return self.tails(targets)[1]

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
        return (targets - p.mean()) * sign + quotient(2 * density - constant, p.rate)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        points, weights = gamma_rule(self.concentration)
        return points / self.rate, weights

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        p, targets = widened((self, targets))
        # A product that underflows would be the impossible target 0.
        least = jnp.finfo(targets.dtype).tiny
        x = jnp.where(targets > 0, jnp.maximum(p.rate * targets, least), 0.0)
        return gamma_tails(p.concentration, x)
