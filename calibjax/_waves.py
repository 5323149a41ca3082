"""Waves exp(i angle), of which characteristic functions and random features are made."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying


def wave(angle: jax.Array, amplitude: jax.Array | float = 1.0) -> jax.Array:
    """amplitude exp(i angle)."""
    return lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle))


def average(weights: jax.Array, items: Any, function: Callable[[Any], jax.Array]) -> jax.Array:
    """sum_k weights[k] function(items[k]), for a function with complex values.

    A loop over components or samples, made again in the derivative instead of held.
    """

    @jax.checkpoint
    def term(weight, item):
        value = function(item)
        return weight.astype(value.dtype) * value

    def step(total, weighted):
        return total + term(*weighted), None

    zero = as_varying(lax.complex(*(jnp.zeros((), weights.dtype),) * 2), (weights, items))
    return lax.scan(step, zero, (weights, items))[0]
