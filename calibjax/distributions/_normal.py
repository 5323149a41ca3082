"""Normal predictions of real numbers and of vectors."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import erf, ndtr, ndtri
from jax.typing import ArrayLike

from calibjax._base.struct import struct, widened
from calibjax._data.distribution import Distribution
from calibjax._numbers.arithmetic import complex_exponential, dot, quotient
from calibjax._numbers.tempering import tempered_scale
from calibjax._numbers.unit_interval import UnitInterval, normal_pit
from calibjax._numbers.validity import FINITE, POSITIVE
from calibjax.distributions._univariate import LocationScale
from calibjax.kernels import Wasserstein


def log_density(z: jax.Array, scale: jax.Array) -> jax.Array:
    """The log density of a normal variable at z standard deviations from its mean."""
    return -jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi) - jnp.square(z) / 2


def _mean_absolute(loc: jax.Array, scale: jax.Array) -> jax.Array:
    """E|X| for a normal variable X."""
    z = quotient(loc, scale)
    return loc * erf(z / np.sqrt(2)) + scale * np.sqrt(2 / np.pi) * jnp.exp(-jnp.square(z) / 2)


@struct
class Normal(LocationScale):
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

    noise = staticmethod(jax.random.normal)
    standard_cdf = staticmethod(ndtr)
    standard_quantile = staticmethod(ndtri)

    def standard_deviation(self) -> jax.Array:
        return self.scale

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n]``, ``[n]``."""
        return log_density(quotient(targets - self.loc, self.scale), self.scale)

    def crps_closed_form(self, targets: jax.Array) -> jax.Array:
        """scale (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) for z = (y - loc) / scale, ``[n]``."""
        return _mean_absolute(targets - self.loc, self.scale) - self.scale / np.sqrt(np.pi)

    def mean_absolute_difference(self, other: Self) -> jax.Array:
        """E|Z - Z'| for independent Z and Z' from *one* prediction each."""
        return _mean_absolute(self.loc - other.loc, jnp.hypot(self.scale, other.scale))

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        return complex_exponential(v * self.loc, jnp.exp(-jnp.square(v * self.scale) / 2))

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
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
    conditions = {"scale_diag": POSITIVE}
    target_shape = "n d"

    def mean(self) -> jax.Array:
        """The means, ``[n, d]``."""
        return self.loc

    def standard_deviation(self) -> jax.Array:
        return self.scale_diag

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n, d]``."""
        return Normal(self.loc, self.scale_diag).sample(key, shape)

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n, d]``, ``[n]``."""
        z = quotient(targets - self.loc, self.scale_diag)
        return jnp.sum(log_density(z, self.scale_diag), axis=-1)

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """The cdfs of the coordinates."""
        return normal_pit(quotient(targets - self.loc, self.scale_diag))

    def default_distance(self) -> Wasserstein:
        return Wasserstein()

    def wasserstein_embedding(self) -> jax.Array:
        """A vector for *one* prediction; distances of two are 2-Wasserstein distances."""
        # Diagonal covariances commute, and then the Bures part is the squared distance of their
        # square roots.
        return jnp.concatenate([self.loc, self.scale_diag])

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        amplitude = jnp.exp(-jnp.sum(jnp.square(v * self.scale_diag)) / 2)
        return complex_exponential(dot(self.loc, v), amplitude)

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        scale_diag = tempered_scale(self.scale_diag, jnp.sqrt(temperature))
        return dataclasses.replace(self, scale_diag=scale_diag)


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
        """The Cholesky factors of the covariances, ``[n, d, d]``; NaN where none exists."""
        return jnp.linalg.cholesky(widened(self.covariance_matrix))

    def constraints(self) -> dict[str, tuple[str, jax.Array]]:
        return {
            "loc": FINITE.of_rows(self.loc),
            "covariance_matrix": (_COVARIANCE, _is_covariance(self)),
        }

    def mean(self) -> jax.Array:
        """The means, ``[n, d]``."""
        return self.loc

    def variance(self) -> jax.Array:
        """The variances of the coordinates, ``[n, d]``."""
        return jnp.diagonal(self.covariance_matrix, axis1=-2, axis2=-1)

    def sample(self, key: jax.Array, shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws ``[*shape, n, d]``."""
        p = widened(self)
        noise = jax.random.normal(key, (*shape, *p.loc.shape), p.loc.dtype)
        factor = p.scale_tril()[(None,) * len(shape)]
        return p.loc[(None,) * len(shape)] + _matmul(factor, noise[..., None])[..., 0]

    def log_prob(self, targets: jax.Array) -> jax.Array:
        """The log density at targets ``[n, d]``, ``[n]``."""
        factor = self.scale_tril()
        z = _in_deviations(factor, targets - self.loc)
        log_scale = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        constant = z.shape[-1] * math.log(2 * math.pi) / 2
        return -jnp.sum(jnp.square(z), axis=-1) / 2 - log_scale - constant

    def unit_box(self, targets: jax.Array) -> UnitInterval:
        """The conditional cdfs of each coordinate given those before it (Rosenblatt 1952)."""
        return normal_pit(_in_deviations(self.scale_tril(), targets - self.loc))

    def squared_wasserstein(self, other: Self) -> jax.Array:
        """The squared 2-Wasserstein distance of *one* prediction to another."""
        # With Cholesky factors L the Bures part is min |L_p - L_q U|^2 over orthogonal U.  Its
        # derivative is the derivative at the fixed optimal U (envelope theorem).  The usual formula
        # with traces cancels: in float32 it is off by 3e-4 at equal covariances.
        factor_p, factor_q = self.scale_tril(), other.scale_tril()
        rotation = _orthogonal_factor(dot(factor_q.T, factor_p))
        same = jnp.all(self.covariance_matrix == other.covariance_matrix)
        difference = jnp.where(same, 0.0, factor_p - dot(factor_q, rotation))
        return jnp.sum(jnp.square(self.loc - other.loc)) + jnp.sum(jnp.square(difference))

    def characteristic(self, v: jax.Array) -> jax.Array:
        """E exp(i <v, Z>) for Z from *one* prediction, a complex number."""
        amplitude = jnp.exp(-dot(v, dot(self.covariance_matrix, v)) / 2)
        return complex_exponential(dot(self.loc, v), amplitude)

    def tempered(self, temperature: jax.Array) -> Self:
        """The predictions with densities proportional to p^(1 / temperature)."""
        covariance = tempered_scale(self.covariance_matrix, temperature)
        return dataclasses.replace(self, covariance_matrix=covariance)


def _in_deviations(factor: jax.Array, differences: jax.Array) -> jax.Array:
    """L^-1 (y - loc), which are d independent standard normal numbers, ``[n, d]``."""
    columns = differences[..., None]
    return lax.linalg.triangular_solve(factor, columns, left_side=True, lower=True)[..., 0]


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
