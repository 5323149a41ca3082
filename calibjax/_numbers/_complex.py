"""Complex exponentials exp(i angle), for characteristic functions and random features."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._sharding import as_varying

T = TypeVar("T")


def complex_exponential(angle: jax.Array, amplitude: jax.Array | float = 1.0) -> jax.Array:
    """amplitude exp(i angle)."""
    return lax.complex(amplitude * jnp.cos(angle), amplitude * jnp.sin(angle))


def complex_average(weights: jax.Array, items: T, function: Callable[[T], jax.Array]) -> jax.Array:
    """sum_k weights[k] function(items[k]), for a function with complex values.

    The sum is a loop, and its derivative evaluates each term again instead of storing it.
    """

    @jax.checkpoint
    def term(weight: jax.Array, item: T) -> jax.Array:
        value = function(item)
        return weight.astype(value.dtype) * value

    def step(total: jax.Array, weighted: tuple[jax.Array, T]) -> tuple[jax.Array, None]:
        return total + term(*weighted), None

    zero = as_varying(lax.complex(*(jnp.zeros((), weights.dtype),) * 2), (weights, items))
    return lax.scan(step, zero, (weights, items))[0]
