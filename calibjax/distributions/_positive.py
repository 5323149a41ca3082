"""Predictions of positive numbers: gamma, Weibull and log-normal."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, gammaln, ndtr, ndtri

from calibjax._base.struct import repeated, struct
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import dot, quotient
from calibjax._numbers.derivatives import polynomial
from calibjax._numbers.special_functions import log_gamma_ratio, log_gamma_step, log_quotient
from calibjax._numbers.unit_interval import quantile_from_cdf
from calibjax._numbers.validity import POSITIVE
from calibjax.distributions._incomplete_gamma import (
    gamma_rule,
    gamma_tails,
    log_of_deviance,
    slope_of_deviance,
)
from calibjax.distributions._univariate import (
    N_ATOMS,
    Univariate,
    positive_points,
    standard_normal_rule,
)


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

    conditions = {"concentration": POSITIVE, "rate": POSITIVE}
    condition_on_targets = POSITIVE
    # Quantiles are slow.
    location, spread = Distribution.location, Distribution.spread

    def mean(self) -> jax.Array:
        """concentration / rate, ``[n]``."""
        return quotient(self.concentration, self.rate)

    def standard_deviation(self) -> jax.Array:
        return quotient(jnp.sqrt(self.concentration), self.rate)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, at least the smallest normal number times the mean."""
        p = repeated(self, shape)
        a, rate = p.concentration, p.rate
        # A draw may be too small for its dtype, but hardly its logarithm.
        log_draw = jax.random.loggamma(key, a, a.shape, a.dtype) - jnp.log(rate)
        return jnp.maximum(jnp.exp(log_draw), jnp.finfo(log_draw.dtype).tiny)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        is_valid = targets > 0
        a, mean = self.concentration, quotient(self.concentration, self.rate)
        y = jnp.where(is_valid, targets, mean)
        # For y = (1 + x) a / rate, rate y - a log(rate y) is a (x - log(1 + x)) + a - a log a.
        exponent = a * (quotient(y - mean, mean) - log_quotient(y, mean))
        return jnp.where(is_valid, log_gamma_ratio(a) - exponent - jnp.log(y), -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        return "a concentration above 2, so that the score has a variance", self.concentration > 2

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``: by bisection on the cdf."""
        standard = Gamma(self.concentration, jnp.ones_like(self.rate))
        return quantile_from_cdf(standard, level, (0.0, jnp.inf)) / self.rate

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """(y - m) (2 F(y) - 1) + (2 y f(y) - 1 / B(1/2, a)) / rate, for the mean m, ``[n]``."""
        sign = 2 * self.cdf(targets) - 1
        density = jnp.exp(self.log_prob(targets) + jnp.log(targets))
        constant = jnp.exp(log_gamma_step(self.concentration)) / math.sqrt(math.pi)
        return (targets - self.mean()) * sign + quotient(2 * density - constant, self.rate)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        points, weights = gamma_rule(self.concentration)
        return points / self.rate, weights

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        # A product that underflows would be the impossible target 0.
        least = jnp.finfo(targets.dtype).tiny
        x = jnp.where(targets > 0, jnp.maximum(self.rate * targets, least), 0.0)
        return gamma_tails(self.concentration, x)


# exp(-exp(7)) is 0 in float64 too.
_LARGEST_LOG_HAZARD = 7.0


@struct
class Weibull(Univariate):
    """Weibull predictions, of lifetimes or wind speeds: P(Y > y) = exp(-(y / scale)^concentration).

    Args:
        concentration: shapes k ``[n]``, positive.
        scale: scales ``[n]``, positive, in units of the targets.

    Targets are positive numbers of shape ``[n]``.

    Expectations of kernels are sums over 64 points, as for every `Univariate` family.  In float64
    the error of E k(Y, y) for a GaussianKernel of 1.4 | 0.5 standard deviations is at most
    2e-8 | 3e-8 for k >= 1.  For k < 1 the tail is long: 4e-8 | 1e-5 at 0.7 and 5e-5 | 5e-4 at 0.3.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Weibull(jnp.array([1.0, 2.0]), jnp.array([3.0, 3.0]))
        >>> predictions.mean().round(3).tolist(), predictions.quantile(0.5).round(3).tolist()
        ([3.0, 2.659], [2.079, 2.498])
    """

    concentration: jax.Array
    scale: jax.Array

    conditions = {"concentration": POSITIVE, "scale": POSITIVE}
    condition_on_targets = POSITIVE

    def mean(self) -> jax.Array:
        """scale Gamma(1 + 1 / k), ``[n]``."""
        return self.scale * jnp.exp(gammaln(1 + 1 / self.concentration))

    def standard_deviation(self) -> jax.Array:
        return self.mean() * _coefficient_of_variation(1 / self.concentration)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, limited to the normal numbers of their dtype."""
        p = repeated(self, shape)
        noise = jax.random.exponential(key, p.scale.shape, p.scale.dtype)
        draws = p.scale * noise ** (1 / p.concentration)
        limits = jnp.finfo(draws.dtype)
        return jnp.clip(draws, limits.tiny, limits.max)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        is_valid = targets > 0
        y = jnp.where(is_valid, targets, self.scale)
        log_hazard = self.concentration * log_quotient(y, self.scale)
        value = jnp.log(self.concentration) + log_hazard - jnp.exp(log_hazard) - jnp.log(y)
        return jnp.where(is_valid, value, -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        return "a concentration above 2, so that the score has a variance", self.concentration > 2

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        is_valid = targets > 0
        y = jnp.where(is_valid, targets, self.scale)
        log_hazard = self.concentration * log_quotient(y, self.scale)
        # Above, the cdf is 1; the derivative of an infinite hazard would be NaN.
        hazard = jnp.exp(jnp.minimum(log_hazard, _LARGEST_LOG_HAZARD))
        below = jnp.where(is_valid, -jnp.expm1(-hazard), 0.0)
        return below, jnp.where(is_valid, jnp.exp(-hazard), 1.0)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``."""
        hazard = -jnp.log1p(-level)
        return self.scale * hazard ** (1 / self.concentration)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """Points scale x(z)^(1 / k), for the points x(z) of `gamma_rule` at concentration 1."""
        farthest = 7.0 if self.scale.dtype == jnp.float64 else 5.5
        end = jnp.minimum(5 + self.concentration / 2, farthest)
        z = end * jnp.asarray(np.linspace(-1, 1, N_ATOMS), self.scale.dtype)
        t = log_of_deviance(z)
        weights = jnp.exp(-jnp.square(z) / 2) * slope_of_deviance(z, t)
        points = positive_points(jnp.log(self.scale), t / self.concentration)
        return points, weights / jnp.sum(weights)


def _coefficient_of_variation(e: jax.Array) -> jax.Array:
    """sqrt(Gamma(1 + 2 e) / Gamma(1 + e)^2 - 1) for e > 0.

    For small e it follows from log Gamma(1 + e) = -gamma e + sum_{j >= 2} zeta(j) (-e)^j / j.
    """
    is_small = e < 0.1
    small, large = jnp.where(is_small, e, 0.0), jnp.where(is_small, 1.0, e)
    series = polynomial(_SERIES, small)
    root = small * jnp.sqrt(series)
    # expm1 of so small a number keeps its digits, but its root has no derivative at 0.
    of_small = jnp.sqrt(jnp.expm1(jnp.where(is_small, jnp.square(root), 1.0)))
    of_large = jnp.sqrt(jnp.expm1(gammaln(1 + 2 * large) - 2 * gammaln(1 + large)))
    return jnp.where(is_small, of_small, of_large)


def _zeta(j: int, n: int = 100) -> float:
    """zeta(j) by its first n - 1 terms and the remainder of Euler and Maclaurin."""
    remainder = n / (j - 1) + 1 / 2 + j / (12 * n) - j * (j + 1) * (j + 2) / (720 * n**3)
    return math.fsum(k**-j for k in range(1, n)) + n**-j * remainder


# (2^j - 2) zeta(j) (-1)^j / j, highest power first.
_SERIES = [(2**j - 2) * _zeta(j) * (-1) ** j / j for j in range(18, 1, -1)]


# Below it the terms of the CRPS are rearranged.
_SMALL_SCALE = 0.3


@struct
class LogNormal(Univariate):
    """Log-normal predictions: log Y is normal with mean loc and standard deviation scale.

    Args:
        loc: means of log Y, ``[n]``.
        scale: standard deviations of log Y, ``[n]``, positive.

    Targets are positive numbers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.LogNormal(loc=jnp.array([0.0]), scale=jnp.array([0.5]))
        >>> predictions.mean().round(3).tolist(), predictions.quantile(0.5).tolist()
        ([1.133], [1.0])
    """

    loc: jax.Array
    scale: jax.Array

    conditions = {"scale": POSITIVE}
    condition_on_targets = POSITIVE

    def mean(self) -> jax.Array:
        """exp(loc + scale^2 / 2), ``[n]``."""
        return jnp.exp(self.loc + jnp.square(self.scale) / 2)

    def standard_deviation(self) -> jax.Array:
        return self.mean() * jnp.sqrt(jnp.expm1(jnp.square(self.scale)))

    def spread(self) -> jax.Array:
        return jnp.exp(self.loc) * jnp.sinh(self.scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, limited to the normal numbers of their dtype."""
        p = repeated(self, shape)
        draws = jnp.exp(p.loc + p.scale * jax.random.normal(key, p.loc.shape, p.loc.dtype))
        limits = jnp.finfo(draws.dtype)
        return jnp.clip(draws, limits.tiny, limits.max)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        z, log_target = self._standardised(targets)
        value = -log_target - jnp.log(self.scale) - 0.5 * math.log(2 * math.pi) - jnp.square(z) / 2
        return jnp.where(targets > 0, value, -jnp.inf)

    def tails(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        z, is_valid = self._standardised(targets)[0], targets > 0
        return jnp.where(is_valid, ndtr(z), 0.0), jnp.where(is_valid, ndtr(-z), 1.0)

    def _standardised(self, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(log(y) - loc) / scale and log(y), of 1 for targets that are not positive."""
        log_target = jnp.log(jnp.where(targets > 0, targets, 1.0))
        return (log_target - self.loc) / self.scale, log_target

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; 0 at level 0 and inf at level 1."""
        return jnp.exp(self.loc + self.scale * ndtri(level))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """y (2 Phi(z) - 1) + 2 E[Y] (Phi(-scale / sqrt(2)) - Phi(z - scale)), ``[n]``.

        z is the standardised log(y).  The terms cancel for a small scale s; there, in units of
        exp(loc), it is 2 (Phi(z) - Phi(z - s)) - erf(s / 2) + expm1(s z) (2 Phi(z) - 1)
        + 2 expm1(s^2 / 2) (Phi(-s / sqrt(2)) - Phi(z - s)).
        """
        z, log_target = self._standardised(targets)
        sign = erf(z / math.sqrt(2))
        inside = 2 * (ndtr(-self.scale / math.sqrt(2)) - ndtr(z - self.scale))
        is_small = self.scale < _SMALL_SCALE
        s = jnp.where(is_small, self.scale, 1.0)
        # Phi(z) - Phi(z - s) is the integral of the density over an interval of the length s.
        nodes, weights = (jnp.asarray(x / 2, s.dtype) for x in np.polynomial.legendre.leggauss(8))
        points = z[:, None] - s[:, None] * (0.5 + nodes[None, :])
        mass = s * dot(jnp.exp(-jnp.square(points) / 2), weights) / math.sqrt(2 * math.pi)
        exponent = jnp.where(is_small, log_target - self.loc, 0.0)
        small = 2 * mass - erf(s / 2) + jnp.expm1(exponent) * sign
        small = jnp.exp(self.loc) * (small + jnp.expm1(jnp.square(s) / 2) * inside)
        return jnp.where(is_small, small, targets * sign + self.mean() * inside)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        z, weights = standard_normal_rule(self.loc.dtype)
        return positive_points(self.loc, self.scale * z), weights
