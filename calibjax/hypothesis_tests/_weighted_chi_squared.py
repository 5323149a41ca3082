"""Approximations of the limit law of n SKCE_u if the model is calibrated.

n SKCE_u converges in law to Q = sum_i lambda_i (Z_i^2 - 1), where Z_i are standard normal and
lambda_i are the eigenvalues of h, the limits of the eigenvalues of H / n (Widmann et al., ICLR
2021, Remark B.2).  With t_k = sum_i lambda_i^k, the second and third cumulants of Q are 2 t_2 and
8 t_3.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaincc


def spectrum_draws(key: jax.Array, matrix: jax.Array, n_resamples: int) -> jax.Array:
    """Draws of Q, where lambda_i are the eigenvalues of `matrix`, ``[n_resamples]``.

    Gretton et al., A fast, consistent kernel two-sample test, NeurIPS 2009.
    """
    eigenvalues = jnp.linalg.eigvalsh(matrix)
    # The largest eigenvalues come first, so that the zeros of masked rows change no draw.
    eigenvalues = eigenvalues[jnp.argsort(-jnp.abs(eigenvalues))]

    def draw(number):
        normal = jax.random.normal(jax.random.fold_in(key, number), eigenvalues.shape, matrix.dtype)
        return jnp.dot(jnp.square(normal) - 1, eigenvalues, precision=lax.Precision.HIGHEST)

    # Some 2^20 normal numbers are drawn at a time.
    batch_size = max(1, 2**20 // matrix.shape[0])
    return lax.map(draw, jnp.arange(n_resamples), batch_size=batch_size)


def gamma_pvalue(statistic: jax.Array, t1: jax.Array, t2: jax.Array) -> jax.Array:
    """P(X >= statistic + t_1), where X has the gamma law with mean t_1 and variance 2 t_2.

    Johnson, Kotz and Balakrishnan, Continuous univariate distributions, 1994, p. 343.
    """
    shape = jnp.square(t1) / (2 * t2)
    return _gamma_tail(shape, (statistic + t1) * t1 / (2 * t2), t2)


def pearson_pvalue(statistic: jax.Array, matrix: jax.Array) -> jax.Array:
    """P(X >= nu + statistic sqrt(nu / t_2)), where X is chi-squared with nu = t_2^3 / t_3^2.

    X, shifted and scaled, is Pearson's curve of type III with the first three moments of Q; the
    eigenvalues are those of `matrix`.
    """
    # The matrix is divided by sqrt(t_2), because powers of its entries may overflow.
    largest = jnp.max(jnp.abs(matrix))
    matrix = matrix / jnp.where(largest > 0, largest, 1.0)
    t2 = jnp.sum(jnp.square(matrix))
    norm = jnp.sqrt(jnp.where(t2 > 0, t2, 1.0))
    matrix = matrix / norm
    squared = jnp.dot(matrix, matrix, precision=lax.Precision.HIGHEST)
    shape = 1 / jnp.square(jnp.sum(squared * matrix)) / 2
    statistic = statistic / jnp.where(largest > 0, largest * norm, 1.0)
    return _gamma_tail(shape, shape + statistic * jnp.sqrt(shape / 2), t2)


def _gamma_tail(shape: jax.Array, x: jax.Array, t2: jax.Array) -> jax.Array:
    """P(X >= x) for the gamma law with the given shape and scale 1; 1 if t_2 is 0."""
    # t_2 = 0 means that h is 0 for all pairs; then the statistic is 0 and the p-value is 1.
    degenerate = t2 == 0
    shape = jnp.where(degenerate, 1.0, shape)
    tail = gammaincc(shape, jnp.where(degenerate, 0.0, jnp.maximum(x, 0.0)))
    return jnp.where(jnp.isnan(x) & ~degenerate, jnp.nan, tail)
