r"""Normal predictions of vectors with any covariance, with a Gaussian target kernel.

In units of the lengthscale, with covariance V and b = mu - y,
E k(Z, y) = |I + V|^{-1/2} exp(-b^T (I + V)^{-1} b / 2).  The difference Z - Z' is normal with
covariance V + V', so that the same formula gives E k(Z, Z').  A tile is computed row by row in
arrays ``[d, d, pairs]``: a CPU runs fastest along the last axis, and the d^2 numbers of each pair
are in memory for one row only.
"""

import jax
import jax.numpy as jnp

from calibjax._loops import row_by_row
from calibjax._numbers import POSITIVE, SMALL, small_expm1, valid_or_nan
from calibjax.distributions._multivariate_normal import (
    MultivariateNormalFullCovariance,
)
from calibjax.distributions._normal_gaussian import alternating
from calibjax.expectations import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance_tile,
)
from calibjax.kernels import GaussianKernel, in_lengthscales

Law = MultivariateNormalFullCovariance


@mean_embedding.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_mean(p: Law, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, covariance, y = _in_lengthscales(p, kernel, y)
    return _expectation(covariance, loc - y)


@inner_product.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_inner(p: Law, kernel: GaussianKernel, q: Law) -> jax.Array:
    return _inner_from_moments(*_in_lengthscales(p, kernel)[:2], *_in_lengthscales(q, kernel)[:2])


@residual_product.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_residual(
    p: Law, kernel: GaussianKernel, y: jax.Array, q: Law, z: jax.Array
) -> jax.Array:
    return _residual_from_moments(*_in_lengthscales(p, kernel, y), *_in_lengthscales(q, kernel, z))


@residual_product_tile.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_residual_tile(
    ps: Law, kernel: GaussianKernel, ys: jax.Array, qs: Law, zs: jax.Array
) -> jax.Array:
    in_lengthscales = jax.vmap(_in_lengthscales, (0, None, 0))
    left, right = in_lengthscales(ps, kernel, ys), in_lengthscales(qs, kernel, zs)
    return row_by_row(_residual_from_moments, left, right)


@squared_embedding_distance_tile.register(MultivariateNormalFullCovariance, GaussianKernel)
def multivariate_normal_gaussian_squared_distance_tile(
    ps: Law, kernel: GaussianKernel, qs: Law
) -> jax.Array:
    def inner(ps: Law, kernel: GaussianKernel, qs: Law) -> jax.Array:
        in_lengthscales = jax.vmap(lambda p: _in_lengthscales(p, kernel)[:2])
        return row_by_row(_inner_from_moments, in_lengthscales(ps), in_lengthscales(qs))

    return squared_distance_tile(ps, kernel, qs, inner)


def _in_lengthscales(
    p: Law, kernel: GaussianKernel, y: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Location, exactly symmetric covariance and target (if any), in units of the lengthscale."""
    loc, y = in_lengthscales(kernel, p.loc, p.loc if y is None else y)
    scale = jnp.broadcast_to(valid_or_nan(POSITIVE, kernel.lengthscale, "lengthscale"), p.loc.shape)
    covariance = p.covariance_matrix / (scale[:, None] * scale[None, :])
    return loc, (covariance + covariance.T) / 2, y


# The functions below take vectors ``[d, …]`` and matrices ``[d, d, …]`` with any axes of pairs.


def _inner_from_moments(p_loc, p_covariance, q_loc, q_covariance) -> jax.Array:
    return _expectation(p_covariance + q_covariance, p_loc - q_loc)


def _residual_from_moments(p_loc, p_covariance, y, q_loc, q_covariance, z) -> jax.Array:
    """`residual_product` without cancellation where the predictions are narrow.

    The derivation is the one of `normal_gaussian_residual`, for matrices.  A term with mean D + t
    and covariance V is exp(-|D|^2 / 2) r exp(e) with r = |I + V|^{-1/2} and
    2 e = (D + t)^T V (I + V)^{-1} (D + t) - 2 t^T D - |t|^2.
    """
    between, u, w = p_loc - q_loc, y - p_loc, z - q_loc
    both = p_covariance + q_covariance
    shifts = _broadcast_and_stack(1, u - w, -w, u, jnp.zeros_like(between))
    covariances = _broadcast_and_stack(2, jnp.zeros_like(both), p_covariance, q_covariance, both)
    between = between[:, None]
    log_det, quadratic, gain = _log_det_and_forms(covariances, between + shifts)

    e = (gain - jnp.sum(shifts * (2 * between + shifts), axis=0)) / 2
    r, r_minus_1 = jnp.exp(-log_det / 2), jnp.expm1(-log_det / 2)
    near = alternating(r * small_expm1(e) + r_minus_1)
    far = alternating(r * jnp.exp(-quadratic / 2))
    common = jnp.exp(-jnp.sum(jnp.square(between[:, 0]), axis=0) / 2)
    return jnp.where(jnp.all(jnp.abs(e) < SMALL, axis=0), common * near, far)


def _broadcast_and_stack(axis: int, *terms: jax.Array) -> jax.Array:
    return jnp.stack(jnp.broadcast_arrays(*terms), axis=axis)


def _expectation(covariance: jax.Array, b: jax.Array) -> jax.Array:
    """E exp(-|X|^2 / 2) for X normal with mean b."""
    log_det, quadratic, _ = _log_det_and_forms(covariance, b)
    return jnp.exp(-(log_det + quadratic) / 2)


def _log_det_and_forms(v: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """log |I + V|, b^T (I + V)^{-1} b and b^T V (I + V)^{-1} b.

    Gaussian elimination of I + V, one coordinate after the other, which stores V instead of I + V:
    the logarithm and the last form keep all digits where V is small.  V is ``[d, d, …]`` and b is
    ``[d, …]``.
    """
    log_det = quadratic = gain = jnp.zeros(b.shape[1:], b.dtype)
    while b.size:
        pivot, column = v[0, 0], v[1:, 0]
        solved = b[0] / (1 + pivot)
        rest = b[1:] - column * solved[None]
        log_det += jnp.log1p(pivot)
        quadratic += b[0] * solved
        gain += solved * (pivot * b[0] + jnp.sum(column * (b[1:] + rest), axis=0))
        v = v[1:, 1:] - column[:, None] * (column / (1 + pivot)[None])[None, :]
        b = rest
    return log_det, quadratic, gain
