"""Functions less their linear part, which would cancel: both are of second order near 0."""

import jax
import jax.numpy as jnp


def log1p_beyond_linear(x: jax.Array) -> jax.Array:
    """log(1 + x) - x for |x| < 0.65: log(1 + x) is 2 artanh(r) for r = x / (2 + x)."""
    r = x / (2 + x)
    square = jnp.square(r)
    series = jnp.zeros_like(x)
    for k in range(19 if x.dtype == jnp.float64 else 9, 0, -1):
        series = series * square + 2 / (2 * k + 1)
    return r * (square * series - x)


def exp_beyond_linear(x: jax.Array) -> jax.Array:
    """exp(x) - 1 - x for |x| < 0.5."""
    series = jnp.ones_like(x)
    for k in range(18 if x.dtype == jnp.float64 else 10, 2, -1):
        series = 1 + series * x / k
    return jnp.square(x) / 2 * series
