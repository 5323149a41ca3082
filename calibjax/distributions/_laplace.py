"""Laplace predictions of real numbers."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct, widened
from calibjax._numbers import (
    absolute,
    complex_exponential,
    mirrored,
    quotient,
    tempered_scale,
)
from calibjax.distributions._divided_differences import first_difference
from calibjax.distributions._univariate import LocationScale


def _standard_cdf(z: jax.Array) -> jax.Array:
    """The cdf for loc 0 and scale 1, with all digits of the lower tail."""
    tail = jnp.exp(-mirrored(z)) / 2
    return jnp.where(z < 0, tail, 1 - tail)


def _standard_quantile(level: jax.Array) -> jax.Array:
    below = level < 0.5
    # 1 - level is exact where it is used.
    tail = jnp.log(2 * jnp.where(below, level, 1 - level))
    return jnp.where(below, tail, -tail)


@struct
class Laplace(LocationScale):
    """Laplace predictions of real targets: density exp(-|y - loc| / scale) / (2 scale).

    Args:
        loc: means ``[n]``, in units of the targets.
        scale: mean absolute deviations ``[n]``, positive; standard deviations are sqrt(2) scale.

    Targets are real numbers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Laplace(loc=jnp.array([0.0, 1.0]), scale=jnp.array([1.0, 2.0]))
        >>> predictions.variance().tolist()
        [2.0, 8.0]
    """

    loc: jax.Array
    scale: jax.Array

    noise = staticmethod(jax.random.laplace)
    standard_cdf = staticmethod(_standard_cdf)
    standard_quantile = staticmethod(_standard_quantile)

    def variance(self) -> jax.Array:
        """The variances, ``[n]``."""
        return 2 * jnp.square(widened(self.scale))

    def standard_deviation(self) -> jax.Array:
        return math.sqrt(2) * widened(self.scale)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        p, targets = widened((self, targets))
        return -quotient(absolute(targets - p.loc), p.scale) - jnp.log(p.scale) - math.log(2)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """|y - loc| + scale (exp(-|y - loc| / scale) - 3 / 4), ``[n]``."""
        p, targets = widened((self, targets))
        distance = mirrored(targets - p.loc)
        return distance + p.scale * (jnp.exp(-quotient(distance, p.scale)) - 0.75)

    def mean_absolute_difference(self, other: Self) -> jax.Array:
        """d + t exp(-d / t) + s^2 (s exp(-d / s) - t exp(-d / t)) / (s^2 - t^2).

        d is the distance of the locations, and the last term is computed from divided differences,
        which do not cancel for scales s and t that are nearly equal.
        """
        distance = mirrored(self.loc - other.loc)
        x, y = distance / self.scale, distance / other.scale
        quotient = jnp.exp(-x) + x * first_difference(x, y)
        weight = jnp.square(self.scale) / (self.scale + other.scale)
        return distance + other.scale * jnp.exp(-y) + weight * quotient

    def wasserstein_coordinates(self) -> tuple[jax.Array, ...]:
        return self.loc, math.sqrt(2) * self.scale

    def characteristic(self, v: jax.Array) -> jax.Array:
        return complex_exponential(v * self.loc, 1 / (1 + jnp.square(v * self.scale)))

    def tempered(self, temperature: jax.Array) -> Self:
        return dataclasses.replace(self, scale=tempered_scale(self.scale, temperature))
