"""Log-normal predictions of positive numbers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr, ndtri

from calibjax._numbers import dot, is_finite, is_positive, with_levels
from calibjax._struct import struct, widened
from calibjax.distributions._univariate import (
    Univariate,
    positive_points,
    standard_normal_rule,
)

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

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "loc": ("finite", is_finite(self.loc)),
            "scale": ("positive and finite", is_positive(self.scale)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "positive and finite", is_positive(targets)

    def mean(self) -> jax.Array:
        """exp(loc + scale^2 / 2), ``[n]``."""
        p = widened(self)
        return jnp.exp(p.loc + jnp.square(p.scale) / 2)

    def variance(self) -> jax.Array:
        """(exp(scale^2) - 1) times the squared means, ``[n]``."""
        return jnp.square(self.standard_deviation())

    def standard_deviation(self) -> jax.Array:
        return self.mean() * jnp.sqrt(jnp.expm1(jnp.square(widened(self.scale))))

    def spread(self) -> jax.Array:
        p = widened(self)
        return jnp.exp(p.loc) * jnp.sinh(p.scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``, limited to the normal numbers of their dtype."""
        p = widened(self)
        leading = (None,) * len(shape)
        noise = jax.random.normal(key, (*shape, *p.loc.shape), p.loc.dtype)
        limits = jnp.finfo(noise.dtype)
        draws = jnp.exp(p.loc[leading] + p.scale[leading] * noise)
        return jnp.clip(draws, limits.tiny, limits.max)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``; -inf for targets that are not positive."""
        p, targets = widened((self, targets))
        log_target = jnp.log(jnp.where(targets > 0, targets, 1.0))
        z = (log_target - p.loc) / p.scale
        value = -log_target - jnp.log(p.scale) - 0.5 * math.log(2 * math.pi) - jnp.square(z) / 2
        return jnp.where(targets > 0, value, -jnp.inf)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets), ``[n]``."""
        p, targets = widened((self, targets))
        log_target = jnp.log(jnp.where(targets > 0, targets, 1.0))
        return jnp.where(targets > 0, ndtr((log_target - p.loc) / p.scale), 0.0)

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets), ``[n]``."""
        p, targets = widened((self, targets))
        log_target = jnp.log(jnp.where(targets > 0, targets, 1.0))
        return jnp.where(targets > 0, ndtr((p.loc - log_target) / p.scale), 1.0)

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; 0 at level 0 and inf at level 1."""
        p, level = with_levels(self, level)
        return jnp.exp(p.loc + p.scale * ndtri(level))

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """y (2 Phi(z) - 1) + 2 E[Y] (Phi(-scale / sqrt(2)) - Phi(z - scale)), ``[n]``.

        z is the standardised log(y).  The terms cancel for a small scale s; there, in units of
        exp(loc), it is 2 (Phi(z) - Phi(z - s)) - erf(s / 2) + expm1(s z) (2 Phi(z) - 1)
        + 2 expm1(s^2 / 2) (Phi(-s / sqrt(2)) - Phi(z - s)).
        """
        p, targets = widened((self, targets))
        log_target = jnp.log(jnp.where(targets > 0, targets, 1.0))
        z = (log_target - p.loc) / p.scale
        sign = erf(z / math.sqrt(2))
        inside = 2 * (ndtr(-p.scale / math.sqrt(2)) - ndtr(z - p.scale))
        is_small = p.scale < _SMALL_SCALE
        s = jnp.where(is_small, p.scale, 1.0)
        # Phi(z) - Phi(z - s) is the integral of the density over an interval of the length s.
        nodes, weights = (jnp.asarray(x / 2, s.dtype) for x in np.polynomial.legendre.leggauss(8))
        places = z[:, None] - s[:, None] * (0.5 + nodes[None, :])
        mass = s * dot(jnp.exp(-jnp.square(places) / 2), weights) / math.sqrt(2 * math.pi)
        exponent = jnp.where(is_small, log_target - p.loc, 0.0)
        small = 2 * mass - erf(s / 2) + jnp.expm1(exponent) * sign
        small = jnp.exp(p.loc) * (small + jnp.expm1(jnp.square(s) / 2) * inside)
        return jnp.where(is_small, small, targets * sign + p.mean() * inside)

    def atoms(self) -> tuple[jax.Array, jax.Array]:
        z, weights = standard_normal_rule(self.loc.dtype)
        return positive_points(self.loc, self.scale * z), weights
