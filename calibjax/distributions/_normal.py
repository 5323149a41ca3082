"""Normal predictions of real numbers, and of vectors with independent coordinates."""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr, ndtri

from calibjax._distribution import Distribution
from calibjax._numbers import (
    UnitInterval,
    complex_exponential,
    dot,
    is_finite,
    is_positive,
    normal_places,
    quotient,
    tempered_scale,
    with_levels,
)
from calibjax._struct import struct, widened
from calibjax.kernels import Wasserstein


def log_density(z: jax.Array, scale: jax.Array) -> jax.Array:
    """The log density of a normal variable at z standard deviations from its mean."""
    return -jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi) - jnp.square(z) / 2


def _mean_absolute(loc: jax.Array, scale: jax.Array) -> jax.Array:
    """E|X| for a normal variable X."""
    z = quotient(loc, scale)
    return loc * erf(z / np.sqrt(2)) + scale * np.sqrt(2 / np.pi) * jnp.exp(-jnp.square(z) / 2)


@struct
class Normal(Distribution):
    """Normal predictions of real targets.

    Args:
        loc: means ``[n]``, in units of the targets.
        scale: standard deviations ``[n]``, positive.

    Targets are real numbers of shape ``[n]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.Normal(loc=jnp.array([0.0, 1.0]), scale=jnp.array([1.0, 2.0]))
        >>> predictions.variance().tolist()
        [1.0, 4.0]
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
        return jnp.square(widened(self.scale))

    def standard_deviation(self) -> jax.Array:
        return widened(self.scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n]``."""
        p = widened(self)
        noise = jax.random.normal(key, (*shape, *p.loc.shape), p.loc.dtype)
        return noise * p.scale[(None,) * len(shape)] + p.loc[(None,) * len(shape)]

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        p, targets = widened((self, targets))
        return log_density(quotient(targets - p.loc, p.scale), p.scale)

    def cdf(self, targets: jax.Array) -> jax.Array:
        """P(Y <= targets[i]), ``[n]``."""
        p, targets = widened((self, targets))
        return ndtr(quotient(targets - p.loc, p.scale))

    def survival(self, targets: jax.Array) -> jax.Array:
        """P(Y > targets[i]), ``[n]``."""
        p, targets = widened((self, targets))
        return ndtr(quotient(p.loc - targets, p.scale))

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantiles ``[n]``; -inf at level 0 and inf at level 1."""
        p, level = with_levels(self, level)
        return p.loc + p.scale * ndtri(level)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """scale (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) for z = (y - loc) / scale, ``[n]``."""
        p, targets = widened((self, targets))
        return _mean_absolute(targets - p.loc, p.scale) - p.scale / np.sqrt(np.pi)

    def mean_absolute_difference(self, other: Self) -> jax.Array:
        return _mean_absolute(self.loc - other.loc, jnp.hypot(self.scale, other.scale))

    def default_distance(self) -> Wasserstein:
        return Wasserstein()

    def wasserstein_embedding(self) -> jax.Array:
        return jnp.stack(self.wasserstein_coordinates())

    def wasserstein_coordinates(self) -> tuple[jax.Array, ...]:
        return self.loc, self.scale

    def characteristic(self, v: jax.Array) -> jax.Array:
        return complex_exponential(v * self.loc, jnp.exp(-jnp.square(v * self.scale) / 2))

    def tempered(self, temperature: jax.Array) -> Self:
        scale = tempered_scale(self.scale, jnp.sqrt(temperature))
        return dataclasses.replace(self, scale=scale)


@struct
class MultivariateNormalDiag(Distribution):
    """Normal predictions of vectors with independent coordinates.

    Args:
        loc: means ``[n, d]``, in units of the targets.
        scale_diag: standard deviations ``[n, d]``, positive.

    Targets are real vectors, ``[n, d]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> predictions = cj.MultivariateNormalDiag(jnp.zeros((5, 2)), jnp.ones((5, 2)))
        >>> predictions.log_prob(jnp.zeros((5, 2))).shape
        (5,)
    """

    loc: jax.Array
    scale_diag: jax.Array

    shapes = {"loc": "n d", "scale_diag": "n d"}
    target_shape = "n d"
    target_kind = "real"

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "loc": ("finite", is_finite(self.loc).all(axis=-1)),
            "scale_diag": ("positive and finite", is_positive(self.scale_diag).all(axis=-1)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "finite", is_finite(targets).all(axis=-1)

    def mean(self) -> jax.Array:
        """The means, ``[n, d]``."""
        return widened(self.loc)

    def variance(self) -> jax.Array:
        """The variances of the coordinates, ``[n, d]``."""
        return jnp.square(widened(self.scale_diag))

    def standard_deviation(self) -> jax.Array:
        return widened(self.scale_diag)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n, d]``."""
        return Normal(self.loc, self.scale_diag).sample(key, shape)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n, d]``, ``[n]``."""
        p, targets = widened((self, targets))
        z = quotient(targets - p.loc, p.scale_diag)
        return jnp.sum(log_density(z, p.scale_diag), axis=-1)

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """The cdfs of the coordinates."""
        p, targets = widened((self, targets))
        return normal_places(quotient(targets - p.loc, p.scale_diag))

    def default_distance(self) -> Wasserstein:
        return Wasserstein()

    def wasserstein_embedding(self) -> jax.Array:
        # Diagonal covariances commute, and then the Bures part is the squared distance of their
        # square roots.
        return jnp.concatenate([self.loc, self.scale_diag])

    def characteristic(self, v: jax.Array) -> jax.Array:
        amplitude = jnp.exp(-jnp.sum(jnp.square(v * self.scale_diag)) / 2)
        return complex_exponential(dot(self.loc, v), amplitude)

    def tempered(self, temperature: jax.Array) -> Self:
        scale_diag = tempered_scale(self.scale_diag, jnp.sqrt(temperature))
        return dataclasses.replace(self, scale_diag=scale_diag)
