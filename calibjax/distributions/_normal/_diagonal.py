"""Normal predictions of vectors with independent coordinates."""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp

from calibjax._distribution import Distribution
from calibjax._numbers import (
    UnitInterval,
    complex_exponential,
    dot,
    is_finite,
    is_positive,
    moved,
    normal_places,
    quotient,
    tempered_scale,
)
from calibjax._struct import struct, widened
from calibjax.distributions._normal._normal import Normal, log_density
from calibjax.kernels import Wasserstein


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

    def shift_and_scale(self, intercept: jax.Array, slope: jax.Array, factor: jax.Array) -> Self:
        scale_diag = tempered_scale(self.scale_diag, factor)
        loc = moved(self.loc, intercept, slope)
        return dataclasses.replace(self, loc=loc, scale_diag=scale_diag)
