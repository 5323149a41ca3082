"""The density of a beta variable, as one of its log odds."""

import jax
import jax.numpy as jnp

from calibjax._numbers import log_gamma_ratio


def log_odds_density(a: jax.Array, b: jax.Array, y: jax.Array) -> jax.Array:
    """log(y^a (1 - y)^b / B(a, b)), the log density of log(Y / (1 - Y)), at y in (0, 1)."""
    log_ratio1, log_ratio0 = log_ratios(a, b, y)
    return log_density_at_mean(a, b) + a * log_ratio1 + b * log_ratio0


def log_density_at_mean(a: jax.Array, b: jax.Array) -> jax.Array:
    """log(m^a (1 - m)^b / B(a, b)) for the mean m = a / (a + b)."""
    return log_gamma_ratio(a) + log_gamma_ratio(b) - log_gamma_ratio(a + b)


def log_ratios(a: jax.Array, b: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log(y / m) and log((1 - y) / (1 - m)) for the mean m = a / (a + b).

    With y - m in both logarithms their linear terms cancel in a sum with the factors a and b, as
    they should.
    """
    total = a + b
    # The smaller one of m and 1 - m has more digits.
    excess = jnp.where(a < b, y - a / total, b / total - (1 - y))
    log_mean, log_complement = jnp.log(a) - jnp.log(total), jnp.log(b) - jnp.log(total)
    return (
        log_ratio(excess * (total / a), jnp.log(y) - log_mean),
        log_ratio(-excess * (total / b), jnp.log1p(-y) - log_complement),
    )


def log_ratio(excess: jax.Array, far: jax.Array) -> jax.Array:
    """log(1 + excess), or `far` where that is not near 0."""
    near = jnp.abs(excess) < 0.5
    return jnp.where(near, jnp.log1p(jnp.where(near, excess, 0.0)), far)
