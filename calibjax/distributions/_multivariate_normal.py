"""Normal predictions of vectors with correlated coordinates."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._distribution import Distribution
from calibjax._numbers import (
    UnitInterval,
    complex_exponential,
    dot,
    is_finite,
    normal_places,
    tempered_scale,
)
from calibjax._struct import struct, widened

_COVARIANCE = (
    "symmetric and positive definite (rescale predictions and targets if their squares are too "
    "small or too large for the dtype)"
)


@struct
class MultivariateNormalFullCovariance(Distribution):
    """Normal predictions of vectors with any covariance.

    Args:
        loc: means ``[n, d]``, in units of the targets.
        covariance_matrix: ``[n, d, d]``, symmetric and positive definite.

    Targets are real vectors, ``[n, d]``.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> covariances = jnp.array([[[1.0, 0.5], [0.5, 2.0]]])
        >>> predictions = cj.MultivariateNormalFullCovariance(jnp.zeros((1, 2)), covariances)
        >>> predictions.variance().tolist()
        [[1.0, 2.0]]
    """

    loc: jax.Array
    covariance_matrix: jax.Array

    shapes = {"loc": "n d", "covariance_matrix": "n d d"}
    target_shape = "n d"
    target_kind = "real"

    @classmethod
    def from_scale_tril(
        cls, loc: ArrayLike, scale_tril: ArrayLike
    ) -> "MultivariateNormalFullCovariance":
        """Predictions with the covariances L L^T.

        Args:
            loc: means ``[n, d]``.
            scale_tril: lower triangular matrices L ``[n, d, d]`` with a nonzero diagonal; entries
                above the diagonal are ignored.
        """
        factor = jnp.tril(jnp.asarray(scale_tril))
        return cls(jnp.asarray(loc), _matmul(factor, jnp.swapaxes(factor, -1, -2)))

    def scale_tril(self) -> jax.Array:
        """The Cholesky factors of the covariances, ``[n, d, d]``; NaN if there is no factor."""
        return jnp.linalg.cholesky(widened(self.covariance_matrix))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "loc": ("finite", is_finite(self.loc).all(axis=-1)),
            "covariance_matrix": (_COVARIANCE, _is_covariance(self)),
        }

    def supports(self, targets: jax.Array) -> tuple[str, jax.Array]:
        return "finite", is_finite(targets).all(axis=-1)

    def mean(self) -> jax.Array:
        """The means, ``[n, d]``."""
        return widened(self.loc)

    def variance(self) -> jax.Array:
        """The variances of the coordinates, ``[n, d]``."""
        return jnp.diagonal(widened(self.covariance_matrix), axis1=-2, axis2=-1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n, d]``."""
        p = widened(self)
        noise = jax.random.normal(key, (*shape, *p.loc.shape), p.loc.dtype)
        factor = p.scale_tril()[(None,) * len(shape)]
        return p.loc[(None,) * len(shape)] + _matmul(factor, noise[..., None])[..., 0]

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n, d]``, ``[n]``."""
        p, targets = widened((self, targets))
        factor = p.scale_tril()
        z = _in_deviations(factor, targets - p.loc)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        constant = z.shape[-1] * math.log(2 * math.pi) / 2
        return -jnp.sum(jnp.square(z), axis=-1) / 2 - log_scale - constant

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """The conditional cdfs of each coordinate given those before it (Rosenblatt 1952)."""
        p, targets = widened((self, targets))
        return normal_places(_in_deviations(p.scale_tril(), targets - p.loc))

    def squared_wasserstein(self, other: Self) -> jax.Array:
        # With Cholesky factors L the Bures part is min |L_p - L_q U|^2 over orthogonal U.  Its
        # derivative is the derivative at the fixed optimal U (envelope theorem).  The usual formula
        # with traces cancels: in float32 it is off by 3e-4 at equal covariances.
        factor_p, factor_q = self.scale_tril(), other.scale_tril()
        rotation = _orthogonal_factor(dot(factor_q.T, factor_p))
        same = jnp.all(self.covariance_matrix == other.covariance_matrix)
        difference = jnp.where(same, 0.0, factor_p - dot(factor_q, rotation))
        return jnp.sum(jnp.square(self.loc - other.loc)) + jnp.sum(jnp.square(difference))

    def characteristic(self, v: jax.Array) -> jax.Array:
        return complex_exponential(
            dot(self.loc, v), jnp.exp(-dot(v, dot(self.covariance_matrix, v)) / 2)
        )

    def tempered(self, temperature: jax.Array) -> Self:
        covariance = tempered_scale(self.covariance_matrix, temperature)
        return dataclasses.replace(self, covariance_matrix=covariance)


def _in_deviations(factor: jax.Array, differences: jax.Array) -> jax.Array:
    """L^-1 (y - loc), which are d independent standard normal numbers, ``[n, d]``."""
    return lax.linalg.triangular_solve(factor, differences[..., None], left_side=True, lower=True)[
        ..., 0
    ]


def _orthogonal_factor(matrix: jax.Array) -> jax.Array:
    """The orthogonal matrix nearest to `matrix`; its derivative is 0."""
    left, _, right = jnp.linalg.svd(lax.stop_gradient(matrix))
    return dot(left, right)


def _matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b with all digits, over the last two axes."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


# Compiled also for arrays of NumPy, whose own factorisation raises an error where it fails.
@jax.jit
def _is_covariance(predictions: MultivariateNormalFullCovariance) -> jax.Array:
    """Which covariances are symmetric and positive definite, ``[n]``."""
    covariance = widened(predictions.covariance_matrix)
    transposed = jnp.swapaxes(covariance, -1, -2)
    largest = jnp.max(jnp.abs(covariance), axis=(-2, -1), keepdims=True)
    symmetric = jnp.all(jnp.abs(covariance - transposed) <= 1e-3 * largest, axis=(-2, -1))
    return symmetric & jnp.all(jnp.isfinite(predictions.scale_tril()), axis=(-2, -1))
