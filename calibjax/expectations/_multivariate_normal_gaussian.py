r"""Normal predictions of vectors with any covariance, with a Gaussian target kernel.

In units of the lengthscale, with covariance V and b = mu - y,
E k(Z, y) = |I + V|^{-1/2} exp(-b^T (I + V)^{-1} b / 2), and Z - Z' is normal, so that two
predictions only add their covariances.
"""

import jax
import jax.numpy as jnp

from calibjax._numerics import SMALL, positive_or_nan, small_expm1
from calibjax.distributions import MultivariateNormalFullCovariance
from calibjax.expectations._dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels import GaussianKernel, in_lengthscales


@mean_embedding.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_mean(p, kernel, y):
    loc, y = in_lengthscales(kernel, p.loc, y)
    return _expectation(_covariance(p, kernel), loc - y)


@inner_product.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_inner(p, kernel, q):
    p_loc, q_loc = in_lengthscales(kernel, p.loc, q.loc)
    return _expectation(_covariance(p, kernel) + _covariance(q, kernel), p_loc - q_loc)


@residual_product.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_residual(p, kernel, y, q, z):
    """The four terms of h, without cancellation where the predictions are narrow.

    As for independent coordinates (`normal_gaussian_residual`): a term with mean D + t and
    covariance V is exp(-|D|^2 / 2) r exp(e) with r = |I + V|^{-1/2} and
    2 e = (D + t)^T V (I + V)^{-1} (D + t) - 2 t^T D - |t|^2.
    """
    p_loc, q_loc, y, z = in_lengthscales(kernel, p.loc, q.loc, y, z)
    p_covariance, q_covariance = _covariance(p, kernel), _covariance(q, kernel)
    between, u, w = p_loc - q_loc, y - p_loc, z - q_loc
    shifts = jnp.stack([u - w, -w, u, jnp.zeros_like(u)])
    zero = jnp.zeros_like(p_covariance)
    covariances = jnp.stack([zero, p_covariance, q_covariance, p_covariance + q_covariance])
    log_det, quadratic, gain = jax.vmap(_eliminate)(covariances, between[None] + shifts)

    e = (gain - jnp.sum(shifts * (2 * between[None] + shifts), axis=1)) / 2
    r, r_minus_1 = jnp.exp(-log_det / 2), jnp.expm1(-log_det / 2)
    near = _alternating(r * small_expm1(e) + r_minus_1)
    far = _alternating(r * jnp.exp(-quadratic / 2))
    common = jnp.exp(-jnp.sum(jnp.square(between)) / 2)
    return jnp.where(jnp.all(jnp.abs(e) < SMALL), common * near, far)


def _covariance(p, kernel) -> jax.Array:
    """The covariance in units of the lengthscale, with all rounding made symmetric."""
    scale = jnp.broadcast_to(positive_or_nan(kernel.lengthscale), p.loc.shape)
    covariance = p.covariance_matrix / (scale[:, None] * scale[None, :])
    return (covariance + covariance.T) / 2


def _expectation(covariance: jax.Array, b: jax.Array) -> jax.Array:
    log_det, quadratic, _ = _eliminate(covariance, b)
    return jnp.exp(-(log_det + quadratic) / 2)


def _eliminate(v: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log |I + V|, b^T (I + V)^{-1} b and b^T V (I + V)^{-1} b, one coordinate after the other.

    Gaussian elimination of I + V that only ever holds V, so that the logarithm and the last form
    keep all digits where V is small; and elementwise over pairs, which a library call for each
    small matrix is not.
    """
    log_det = quadratic = gain = jnp.zeros((), b.dtype)
    while b.size:
        pivot, column = v[0, 0], v[1:, 0]
        solved = b[0] / (1 + pivot)
        rest = b[1:] - column * solved
        log_det += jnp.log1p(pivot)
        quadratic += b[0] * solved
        gain += solved * (pivot * b[0] + jnp.sum(column * (b[1:] + rest)))
        v = v[1:, 1:] - column[:, None] * column[None, :] / (1 + pivot)
        b = rest
    return log_det, quadratic, gain


def _alternating(terms: jax.Array) -> jax.Array:
    return (terms[0] - terms[1]) - (terms[2] - terms[3])
