"""Random vectors whose characteristic functions are kernels, for lengthscale 1."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def normal_mixture(
    key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
) -> jax.Array:
    """w with E cos(<w, x>) = exp(-|x|^nu): exp(-r^nu) = E exp(-a r^2), a mixture of Gaussians."""
    scale_key, key = jax.random.split(key)
    scale = jnp.sqrt(2 * _positive_stable(scale_key, exponent / 2, dtype))
    return scale * jax.random.normal(key, shape, dtype)


def cauchy_mixture(
    key: jax.Array, exponent: float, shape: tuple[int, ...], dtype: DTypeLike
) -> jax.Array:
    """w with E cos(<w, x>) = exp(-r^nu), r = sum_c |x_c|: exp(-r^nu) = E exp(-a r), a mixture of
    exponentials."""
    scale_key, key = jax.random.split(key)
    scale = _positive_stable(scale_key, exponent, dtype)
    return scale * jax.random.cauchy(key, shape, dtype)


def student(freedom: int, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """One draw of the multivariate t distribution, the frequencies of Matern kernels."""
    normal_key, key = jax.random.split(key)
    squares = jnp.square(jax.random.normal(key, (freedom,), dtype))
    return jax.random.normal(normal_key, shape, dtype) / jnp.sqrt(jnp.mean(squares))


def _positive_stable(key: jax.Array, index: float, dtype: DTypeLike) -> jax.Array:
    """A draw of a > 0 with E exp(-t a) = exp(-t^index), 0 < index <= 1.

    Kanter, Stable densities under change of scale and total variation inequalities, 1975.
    """
    if index == 1:
        return jnp.ones((), dtype)
    angle_key, exponential_key = jax.random.split(key)
    tiny = jnp.finfo(dtype).tiny
    angle = jax.random.uniform(angle_key, (), dtype, minval=tiny, maxval=jnp.pi)
    exponential = jax.random.exponential(exponential_key, (), dtype)
    # pi is rounded, and where it is rounded up its sine is negative.
    logs = [jnp.log(jnp.abs(jnp.sin(c * angle))) for c in (1 - index, 1.0, index)]
    log_power = (1 - index) * (logs[0] - jnp.log(exponential)) - logs[1]
    return jnp.exp(jnp.minimum(log_power / index + logs[2], _LARGEST_LOG))


# A frequency of 1e10 already makes the feature noise; the bound keeps its products finite.
_LARGEST_LOG = 50.0
