r"""Normal predictions, of numbers or of independent coordinates, with a Gaussian target kernel.

In units of the lengthscale, with variance v = sigma^2 and d = mu - y,
E k(Z, y) = prod_c (1 + v)^{-1/2} exp(-d^2 / (2 (1 + v))), and Z - Z' is normal, so that two
predictions only add their variances.
"""

import jax
import jax.numpy as jnp

from calibjax.distributions import MultivariateNormalDiag, Normal
from calibjax.expectations._dispatch import inner_product, mean_embedding, residual_product
from calibjax.kernels import GaussianKernel, in_lengthscales


def normal_gaussian_mean(p, kernel, y):
    loc, scale, y = in_lengthscales(kernel, *_parameters(p), y)
    return jnp.exp(_log_term(loc - y, jnp.square(scale)))


def normal_gaussian_inner(p, kernel, q):
    p_loc, p_scale, q_loc, q_scale = in_lengthscales(kernel, *_parameters(p), *_parameters(q))
    return jnp.exp(_log_term(p_loc - q_loc, jnp.square(p_scale) + jnp.square(q_scale)))


def normal_gaussian_residual(p, kernel, y, q, z):
    """The four terms of h, without cancellation where the scales are small.

    All four are exp(-D^2/2) times exp(e) with D = mu - mu' and e near 0 if the predictions are
    much narrower than the kernel: there h is a difference of expm1(e), elsewhere of the terms.
    """
    p_loc, p_scale, q_loc, q_scale, y, z = in_lengthscales(
        kernel, *_parameters(p), *_parameters(q), y, z
    )
    p_variance, q_variance = jnp.square(p_scale), jnp.square(q_scale)
    zero = jnp.zeros_like(p_variance)
    between = p_loc - q_loc
    u, w = y - p_loc, z - q_loc
    terms = (
        (u - w, zero),
        (-w, p_variance),
        (u, q_variance),
        (zero, p_variance + q_variance),
    )
    near_terms = [_log_ratio(between, shift, variance) for shift, variance in terms]
    near = jnp.array([jnp.abs(e) < 1 for e in near_terms]).all()
    a, b, c, d = (jnp.expm1(jnp.where(near, e, 0.0)) for e in near_terms)
    near_value = jnp.exp(-jnp.sum(jnp.square(between)) / 2) * ((a - b) - (c - d))
    a, b, c, d = (jnp.exp(_log_term(between + shift, variance)) for shift, variance in terms)
    return jnp.where(near, near_value, (a - b) - (c - d))


def _parameters(p) -> tuple[jax.Array, jax.Array]:
    return (p.loc, p.scale) if isinstance(p, Normal) else (p.loc, p.scale_diag)


def _log_term(d: jax.Array, variance: jax.Array) -> jax.Array:
    """log E k for a difference with mean d and the given variance, over all coordinates."""
    return -jnp.sum(jnp.square(d) / (1 + variance) + jnp.log1p(variance)) / 2


def _log_ratio(between: jax.Array, shift: jax.Array, variance: jax.Array) -> jax.Array:
    """_log_term(between + shift, variance) + between^2 / 2, without cancellation."""
    squares = (variance * between - 2 * shift) * between - jnp.square(shift)
    return jnp.sum(squares / (1 + variance) - jnp.log1p(variance)) / 2


for family in (Normal, MultivariateNormalDiag):
    mean_embedding.register(family, GaussianKernel)(normal_gaussian_mean)
    inner_product.register(family, GaussianKernel)(normal_gaussian_inner)
    residual_product.register(family, GaussianKernel)(normal_gaussian_residual)
