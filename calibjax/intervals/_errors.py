"""Laws of |delta|^2, the squared error of an estimate in a space of functions.

Each law is a pytree with a method ``quantile(level)``, which a `NormInterval` takes.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc

from calibjax._numbers import smallest_with
from calibjax._struct import struct
from calibjax.resampling import upper_quantile


@struct
class DrawnErrors:
    """The law of R draws, ``[..., R]``."""

    draws: jax.Array

    def quantile(self, level: jax.Array) -> jax.Array:
        """The draw of rank ceil(level (R + 1)): at most R + 1 times 1 - level draws exceed it.

        So a number exceeds the quantile exactly if its `counted_pvalue` is at most 1 - level.
        Above the level R / (R + 1), which draws do not reach, the largest draw grows as the squared
        quantiles of a normal law do.  A sum of several squares with weights grows less.
        """
        draws = jnp.asarray(self.draws)
        found, beyond = upper_quantile(draws, level)
        return found * jnp.square(jnp.maximum(beyond, 1.0))


@struct
class GammaErrors:
    """The law of mean + deviation (G - k) / sqrt(k), where G has the gamma law of shape k."""

    mean: jax.Array
    deviation: jax.Array
    shape: jax.Array

    def quantile(self, level: jax.Array) -> jax.Array:
        """The quantile, by bisection; the mean, if the deviation is 0."""
        mean, deviation, k = map(jnp.asarray, (self.mean, self.deviation, self.shape))
        k, levels = jnp.broadcast_arrays(k, level)
        x = smallest_with(lambda x: (x >= 0) & (gammainc(k, jnp.maximum(x, 0.0)) >= levels), k)
        excess = deviation * (x - k) / jnp.sqrt(k)
        return jnp.where(jnp.isnan(levels), jnp.nan, mean + jnp.where(deviation == 0, 0.0, excess))


def two_moment_errors(mean: jax.Array, t1: jax.Array, t2: jax.Array) -> GammaErrors:
    """The gamma law of mean t1 and variance 2 t2, shifted to another mean."""
    safe = jnp.where(t2 == 0, 1.0, 2 * t2)
    return GammaErrors(mean, jnp.sqrt(2 * t2), jnp.where(t2 == 0, 1.0, jnp.square(t1) / safe))


def three_moment_errors(mean: jax.Array, matrix: jax.Array) -> GammaErrors:
    """A shifted gamma law with the variance and the skewness of sum_i lambda_i Z_i^2.

    lambda_i are the eigenvalues of the positive semidefinite `matrix` A, and Z_i standard normal:
    the second and the third cumulant are 2 tr A^2 and 8 tr A^3.
    """
    # In units of the largest entry, because powers of small numbers may underflow.
    unit = jnp.max(jnp.abs(matrix))
    scaled = matrix / jnp.where(unit == 0, 1.0, unit)
    squared = jnp.dot(scaled, scaled, precision=jax.lax.Precision.HIGHEST)
    t2, t3 = jnp.trace(squared), jnp.sum(squared * scaled)
    # The skewness of a gamma law of shape k is 2 / sqrt(k).
    shape = jnp.where(unit == 0, 1.0, t2**3 / jnp.where(unit == 0, 1.0, 2 * jnp.square(t3)))
    return GammaErrors(mean, jnp.sqrt(2 * t2) * unit, shape)
