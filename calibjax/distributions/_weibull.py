"""Weibull predictions of positive numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from calibjax._numbers import is_positive, log_quotient, with_levels
from calibjax._struct import struct, widened
from calibjax.distributions._incomplete_gamma import log_of_deviance, slope_of_deviance
from calibjax.distributions._univariate import N_ATOMS, Univariate, positive_points

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

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "concentration": ("positive and finite", is_positive(self.concentration)),
            "scale": ("positive and finite", is_positive(self.scale)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "positive and finite", is_positive(targets)

    def mean(self) -> jax.Array:
        """scale Gamma(1 + 1 / k), ``[n]``."""
        p = widened(self)
        return p.scale * jnp.exp(gammaln(1 + 1 / p.concentration))

    def variance(self) -> jax.Array:
        """scale^2 (Gamma(1 + 2 / k) - Gamma(1 + 1 / k)^2), ``[n]``."""
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        p = widened(self)
        return self.mean() * _coefficient_of_variation(1 / p.concentration)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, limited to the normal numbers of their dtype."""
        p = widened(self)
        leading = (None,) * len(shape)
        noise = jax.random.exponential(key, (*shape, *p.scale.shape), p.scale.dtype)
        draws = p.scale[leading] * noise ** (1 / p.concentration)[leading]
        limits = jnp.finfo(draws.dtype)
        return jnp.clip(draws, limits.tiny, limits.max)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        p, targets = widened((self, targets))
        is_valid = targets > 0
        y = jnp.where(is_valid, targets, p.scale)
        log_hazard = p.concentration * log_quotient(y, p.scale)
        value = jnp.log(p.concentration) + log_hazard - jnp.exp(log_hazard) - jnp.log(y)
        return jnp.where(is_valid, value, -jnp.inf)

    def has_stein_identity(self) -> tuple[str, jax.Array]:
        words = "a concentration above 2, so that the score has a variance"
        return words, self.concentration > 2

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        return jnp.where(targets > 0, -jnp.expm1(-self._hazard(targets)), 0.0)

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets), ``[n]``."""
        return jnp.where(targets > 0, jnp.exp(-self._hazard(targets)), 1.0)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles at a level, a number or ``[n]``."""
        p, level = with_levels(self, level)
        hazard = -jnp.log1p(-level)
        return p.scale * hazard ** (1 / p.concentration)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        """Points scale x(z)^(1 / k), for the points x(z) of `gamma_rule` at concentration 1."""
        end = jnp.minimum(
            5 + self.concentration / 2, 7.0 if self.scale.dtype == jnp.float64 else 5.5
        )
        z = end * jnp.asarray(np.linspace(-1, 1, N_ATOMS), self.scale.dtype)
        t = log_of_deviance(z)
        weights = jnp.exp(-jnp.square(z) / 2) * slope_of_deviance(z, t)
        points = positive_points(jnp.log(self.scale), t / self.concentration)
        return points, weights / jnp.sum(weights)

    def _hazard(self, targets: jax.Array) -> jax.Array:
        """(y / scale)^k, the exponent of P(Y > y), for targets that are positive."""
        p, targets = widened((self, targets))
        y = jnp.where(targets > 0, targets, p.scale)
        log_hazard = p.concentration * log_quotient(y, p.scale)
        # Above, the cdf is 1; the derivative of an infinite hazard would be NaN.
        return jnp.exp(jnp.minimum(log_hazard, _LARGEST_LOG_HAZARD))


def _coefficient_of_variation(e: jax.Array) -> jax.Array:
    """sqrt(Gamma(1 + 2 e) / Gamma(1 + e)^2 - 1) for e > 0.

    For small e it follows from log Gamma(1 + e) = -gamma e + sum_{j >= 2} zeta(j) (-e)^j / j.
    """
    is_small = e < 0.1
    small, large = jnp.where(is_small, e, 0.0), jnp.where(is_small, 1.0, e)
    series = functools.reduce(lambda sum, c: sum * small + c, _SERIES, jnp.zeros_like(e))
    root = small * jnp.sqrt(series)
    # expm1 of so small a number keeps its digits, but its root has no derivative at 0.
    of_small = jnp.sqrt(jnp.expm1(jnp.where(is_small, jnp.square(root), 1.0)))
    of_large = jnp.sqrt(jnp.expm1(gammaln(1 + 2 * large) - 2 * gammaln(1 + large)))
    return jnp.where(is_small, of_small, of_large)


#: zeta(2), …, zeta(7); the sum of few powers is zeta(j) for larger j.
_ZETA = (
    1.6449340668482264,
    1.2020569031595942,
    1.0823232337111382,
    1.0369277551433699,
    1.0173430619844491,
    1.0083492773819228,
    *(sum(k**-j for k in range(1, 200)) for j in range(8, 19)),
)
# (2^j - 2) zeta(j) (-1)^j / j, highest power first.
_SERIES = [(2**j - 2) * zeta * (-1) ** j / j for j, zeta in enumerate(_ZETA, 2)][::-1]
