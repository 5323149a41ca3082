r"""Normal predictions, of numbers or of independent coordinates, with a Gaussian target kernel.

In units of the lengthscale, with variance v = sigma^2 and d = mu - y,
E k(Z, y) = prod_c (1 + v)^{-1/2} exp(-d^2 / (2 (1 + v))), and Z - Z' is normal, so that two
predictions only add their variances.
"""

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp

from calibjax._loops import row_by_row
from calibjax._numbers import SMALL, reciprocal, small_expm1
from calibjax.distributions._normal import MultivariateNormalDiag, Normal
from calibjax.expectations import (
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_embedding_distance,
)
from calibjax.kernels import GaussianKernel, in_lengthscales

Law = Normal | MultivariateNormalDiag


def normal_gaussian_mean(p: Law, kernel: GaussianKernel, y: jax.Array) -> jax.Array:
    loc, scale, y = in_lengthscales(kernel, *_parameters(p), y)
    return _expectation(loc - y, jnp.square(scale))


def normal_gaussian_inner(p: Law, kernel: GaussianKernel, q: Law) -> jax.Array:
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, *_parameters(p), *_parameters(q))
    return _expectation(p_loc - q_loc, jnp.square(p_scale) + jnp.square(q_scale))


def normal_gaussian_residual(
    p: Law, kernel: GaussianKernel, y: jax.Array, q: Law, z: jax.Array
) -> jax.Array:
    """The four terms of h, without cancellation where the predictions are narrow.

    With D = mu - mu', a term with mean D + t and variance v is exp(-D^2/2) r exp(e) with
    r = (1 + v)^{-1/2} and e = (v D^2 - 2 t D - t^2) / (2 (1 + v)).  If all four e are small, which
    narrow predictions make them, h is exp(-D^2/2) times a difference of r exp(e) - 1 =
    r expm1(e) + (r - 1); elsewhere it is the difference of the terms themselves.
    """
    p_loc, p_scale, q_loc, q_scale, y, z = in_lengthscales(
        kernel, *_parameters(p), *_parameters(q), y, z
    )
    numbers = p_loc, jnp.square(p_scale), y, q_loc, jnp.square(q_scale), z
    return (_residual_of_numbers if p_loc.ndim == 0 else _residual)(*numbers)


@residual_product_tile.register(MultivariateNormalDiag, GaussianKernel)
def diag_gaussian_residual_tile(
    ps: MultivariateNormalDiag,
    kernel: GaussianKernel,
    ys: jax.Array,
    qs: MultivariateNormalDiag,
    zs: jax.Array,
) -> jax.Array:
    def numbers(p, y):
        loc, scale, y = in_lengthscales(kernel, *_parameters(p), y)
        return loc, jnp.square(scale), y

    return row_by_row(_residual, jax.vmap(numbers)(ps, ys), jax.vmap(numbers)(qs, zs))


# What follows is for numbers, or for vectors, coordinates first, of pairs on any further axes.


def _sum(x: jax.Array) -> jax.Array:
    """The sum over coordinates."""
    return x if x.ndim == 0 else jnp.sum(x, axis=0)


def _residual(p_loc, p_variance, y, q_loc, q_variance, z) -> jax.Array:
    is_near, common, near, far = _terms(p_loc, p_variance, y, q_loc, q_variance, z)
    return jnp.where(is_near, common * alternating(near), alternating(far))


def _terms(
    p_loc, p_variance, y, q_loc, q_variance, z
) -> tuple[jax.Array, jax.Array, list[jax.Array], list[jax.Array]]:
    """Whether all four e are small, exp(-D^2/2), r exp(e) - 1 if so, and exp(-D^2/2) r exp(e)."""
    between, near, far, exponents = p_loc - q_loc, [], [], []
    for t, v in _shifts_and_variances(p_loc, p_variance, y, q_loc, q_variance, z):
        r, r_minus_1 = _shrinkage(v)
        e = _sum(((v * between - 2 * t) * between - jnp.square(t)) / (1 + v)) / 2
        exponents.append(jnp.abs(e))
        near.append(r * small_expm1(e) + r_minus_1)
        far.append(r * jnp.exp(-_sum(jnp.square(between + t) / (1 + v)) / 2))
    is_near = functools.reduce(jnp.maximum, exponents) < SMALL
    return is_near, jnp.exp(-_sum(jnp.square(between)) / 2), near, far


def _shifts_and_variances(
    p_loc, p_variance, y, q_loc, q_variance, z
) -> Iterator[tuple[jax.Array, jax.Array]]:
    u, w, zero = y - p_loc, z - q_loc, jnp.zeros_like(p_variance)
    return zip(
        (u - w, -w, u, zero), (zero, p_variance, q_variance, p_variance + q_variance), strict=True
    )


_residual_of_numbers = jax.custom_jvp(_residual)


@_residual_of_numbers.defjvp
def _residual_jvp(primals, tangents):
    """All partial derivatives of h, by the terms it is made of: half the time of what jax derives.

    With r = (1 + v)^{-1/2}, a term F = r exp(-b^2 / (2 (1 + v))) of mean b and variance v has the
    derivative -m in b, where m = b F / (1 + v).  As r has the derivative -r / (2 (1 + v)), that of
    F in v is (b m - F) / (2 (1 + v)).  Here h = F1 - F2 - F3 + F4; the means are y - z, mu - z,
    y - mu' and mu - mu', and the variances 0, those of the two predictions, and the sum of both.
    The chain rule then gives the partial derivatives below.

    The four m only occur in differences, which cancel if all four e are small.  There D exp(-D^2/2)
    is left out of each m: with n = r exp(e) - 1 and b = D + t, F is exp(-D^2/2) (1 + n), and
    b / (1 + v) is D + shift for shift = t - v b / (1 + v), so that
    m - D exp(-D^2/2) = D exp(-D^2/2) n + shift F.
    """
    is_near, common, near, far = _terms(*primals)
    between = primals[0] - primals[3]
    of_mean, of_variance = [], []
    for (t, v), n, term in zip(_shifts_and_variances(*primals), near, far, strict=True):
        inverse = reciprocal(1 + v)
        b = between + t
        m = b * inverse * term
        shift = t - v * b * inverse
        of_mean.append(jnp.where(is_near, between * (common * n) + shift * term, m))
        of_variance.append((b * m - term) * inverse / 2)
    (m1, m2, m3, m4), (_, v2, v3, v4) = of_mean, of_variance
    partials = m2 - m4, v4 - v2, m3 - m1, m4 - m3, v4 - v3, m1 - m2
    value = jnp.where(is_near, common * alternating(near), alternating(far))
    return value, sum(a * b for a, b in zip(partials, tangents, strict=True))


def normal_gaussian_squared_distance(p: Law, kernel: GaussianKernel, q: Law) -> jax.Array:
    """|mu_p - mu_q|^2 = (A - B)^2 + 2 A B (1 - cos), with norms A, B and the cosine of the angle.

    With variances a and b and t = (a - b) / (1 + a + b), B^4 = prod_c 1 / (1 + 2b),
    A^4 / B^4 = prod_c (1 - t) / (1 + t), and cos^4 = prod_c (1 - t^2) exp(-2 D^2 / (1 + a + b)).
    """
    (p_loc, p_scale), (q_loc, q_scale) = _parameters(p), _parameters(q)
    # Differences first, which are exact for near predictions.
    between, wider, p_scale, q_scale = in_lengthscales(
        kernel, p_loc - q_loc, p_scale - q_scale, p_scale, q_scale
    )
    a, b = jnp.square(p_scale), jnp.square(q_scale)
    total = 1 + a + b
    t = wider * (p_scale + q_scale) / total
    # Near 1 or -1, t has lost what log(1 - t^2) is made of.
    near = jnp.abs(t) < 0.5
    t = jnp.where(near, t, 0.0)
    log_a, log_b = jnp.log1p(2 * a), jnp.log1p(2 * b)
    log_ratio = jnp.where(near, jnp.log1p(-t) - jnp.log1p(t), log_b - log_a)
    log_cos = jnp.where(near, jnp.log1p(-jnp.square(t)), log_a + log_b - 2 * jnp.log(total))
    log_cos -= 2 * jnp.square(between) / total
    relative = jnp.expm1(jnp.sum(log_ratio) / 4)
    angle = -jnp.expm1(jnp.sum(log_cos) / 4)
    return jnp.exp(-jnp.sum(log_b) / 2) * (jnp.square(relative) + 2 * (relative + 1) * angle)


def _parameters(p) -> tuple[jax.Array, jax.Array]:
    return (p.loc, p.scale) if isinstance(p, Normal) else (p.loc, p.scale_diag)


def _expectation(d: jax.Array, variance: jax.Array) -> jax.Array:
    """E k for a difference with mean d and the given variance, over all coordinates."""
    return _shrinkage(variance)[0] * jnp.exp(-_sum(jnp.square(d) / (1 + variance)) / 2)


def _shrinkage(variance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """r = prod_c (1 + v_c)^{-1/2}, and r - 1 with all its digits."""
    if variance.ndim == 0:
        r = jnp.sqrt(1 / (1 + variance))
        return r, -variance / ((1 + variance) * (1 + r))
    log_r = -_sum(jnp.log1p(variance)) / 2
    return jnp.exp(log_r), jnp.expm1(log_r)


def alternating(terms: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """The four terms of h, put together."""
    return (terms[0] - terms[1]) - (terms[2] - terms[3])


for family in (Normal, MultivariateNormalDiag):
    mean_embedding.register(family, GaussianKernel)(normal_gaussian_mean)
    inner_product.register(family, GaussianKernel)(normal_gaussian_inner)
    residual_product.register(family, GaussianKernel)(normal_gaussian_residual)
    squared_embedding_distance.register(family, GaussianKernel)(normal_gaussian_squared_distance)
