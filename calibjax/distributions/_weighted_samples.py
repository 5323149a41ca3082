"""The cdf and the quantiles of weighted samples of real numbers, of one prediction."""

import jax
import jax.numpy as jnp

from calibjax._inversion import falls_short


def check_numbers(samples: jax.Array, name: str) -> None:
    """Raises a TypeError for a batch of samples that are vectors."""
    if samples.ndim != 2:
        raise TypeError(
            f"Empirical predictions have a {name} if samples are real numbers [n, S], got shape "
            f"{list(samples.shape)}."
        )


def cdf_jump(
    weights: jax.Array, samples: jax.Array, target: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P(Z < target) and P(Z <= target), from S weights and samples."""
    total = jnp.sum(weights)
    below = jnp.sum(jnp.where(samples < target, weights, 0.0))
    up_to = jnp.sum(jnp.where(samples <= target, weights, 0.0))
    return below / total, up_to / total


def quantile(weights: jax.Array, samples: jax.Array, level: jax.Array) -> jax.Array:
    """The smallest sample z of positive weight with P(Z <= z) >= level."""
    order = jnp.argsort(samples)
    sums = jnp.cumsum(weights[order])
    too_small = falls_short(sums, level) | (sums <= 0)
    found = samples[order][jnp.sum(too_small)]
    return jnp.where(jnp.isnan(level), jnp.nan, found)
