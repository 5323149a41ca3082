"""Branches that stay branches where a function is vmapped."""

import jax
import jax.numpy as jnp


@jax.custom_batching.custom_vmap
def anywhere(condition: jax.Array) -> jax.Array:
    """The condition, which under `vmap` holds for the whole batch if it holds for any part of it.

    `lax.cond` of it makes one branch, where a condition for each part would make both.
    """
    return condition


@anywhere.def_vmap
def _anywhere_in_batch(size: int, is_batched: list[bool], condition: jax.Array):
    return anywhere(jnp.any(condition, axis=0)), False
