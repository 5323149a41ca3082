"""Laplace predictions of real numbers."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import (
    absolute,
    complex_exponential,
    is_finite,
    is_positive,
    mirrored,
    quotient,
    tempered_scale,
    with_levels,
)
from calibjax._struct import struct, widened
from calibjax.distributions._divided_differences import first_difference
from calibjax.kernels import Wasserstein


@struct
class Laplace(Distribution):
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

    shapes = {"loc": "n", "scale": "n"}
    target_shape = "n"
    target_kind = "real"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "loc": ("finite", is_finite(self.loc)),
            "scale": ("positive and finite", is_positive(self.scale)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "finite", is_finite(targets)

    def mean(self) -> jax.Array:
        """The means, ``[n]``."""
        return widened(self.loc)

    def variance(self) -> jax.Array:
        """The variances, ``[n]``."""
        return 2 * jnp.square(widened(self.scale))

    def standard_deviation(self) -> jax.Array:
        return math.sqrt(2) * widened(self.scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``."""
        p = widened(self)
        noise = jax.random.laplace(key, (*shape, *p.loc.shape), p.loc.dtype)
        return noise * p.scale[(None,) * len(shape)] + p.loc[(None,) * len(shape)]

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        p, targets = widened((self, targets))
        return -quotient(absolute(targets - p.loc), p.scale) - jnp.log(p.scale) - math.log(2)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``."""
        p, targets = widened((self, targets))
        return _standard_cdf(quotient(targets - p.loc, p.scale))

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets[i]), ``[n]``."""
        p, targets = widened((self, targets))
        return _standard_cdf(quotient(p.loc - targets, p.scale))

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; -inf at level 0 and inf at level 1."""
        p, level = with_levels(self, level)
        below = level < 0.5
        # 1 - level is exact where it is used.
        tail = jnp.log(2 * jnp.where(below, level, 1 - level))
        return p.loc + p.scale * jnp.where(below, tail, -tail)

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

    def default_distance(self) -> Wasserstein:
        return Wasserstein()

    def wasserstein_embedding(self) -> jax.Array:
        return jnp.stack(self.wasserstein_coordinates())

    def wasserstein_coordinates(self) -> tuple[jax.Array, ...]:
        return self.loc, math.sqrt(2) * self.scale

    def characteristic(self, v: jax.Array) -> jax.Array:
        return complex_exponential(v * self.loc, 1 / (1 + jnp.square(v * self.scale)))

    def tempered(self, temperature: jax.Array) -> Self:
        return dataclasses.replace(self, scale=tempered_scale(self.scale, temperature))


def _standard_cdf(z: jax.Array) -> jax.Array:
    """The cdf for loc 0 and scale 1, with all digits of the lower tail."""
    tail = jnp.exp(-mirrored(z)) / 2
    return jnp.where(z < 0, tail, 1 - tail)
