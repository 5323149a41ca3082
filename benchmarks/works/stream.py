"""More rows than are ever held: each batch is made from a key, and seen once."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

import calibjax as cj
from benchmarks.works.data import LABEL_KERNEL


def batch_of(key: jax.Array, n: int, m: int) -> tuple[cj.Categorical, jax.Array]:
    """Predictions of a calibrated model and labels drawn from them."""
    logits = jax.random.normal(key, (n, m))
    labels = jax.random.categorical(jax.random.fold_in(key, 1), logits)
    return cj.Categorical.from_logits(logits), labels


def stream(n: int, m: int, batch: int, block_size: int) -> Callable[[], tuple[jax.Array, ...]]:
    """Estimate and standard error from n rows, some at a time."""

    @jax.jit
    def estimate(key):
        def step(state, key):
            return state.update(LABEL_KERNEL, *batch_of(key, batch, m)), None

        keys = jax.random.split(key, n // batch)
        state, _ = lax.scan(step, cj.SKCEState.empty(block_size), keys)
        result = state.compute()
        return result.estimate, result.standard_error

    return functools.partial(estimate, jax.random.key(0))


def batches_alone(n: int, m: int, batch: int) -> Callable[[], jax.Array]:
    """The same rows, of which only a sum is kept: what it takes to make them."""

    @jax.jit
    def total(key):
        def step(total, key):
            predictions, labels = batch_of(key, batch, m)
            return total + jnp.sum(predictions.probs) + jnp.sum(labels), None

        return lax.scan(step, jnp.zeros(()), jax.random.split(key, n // batch))[0]

    return functools.partial(total, jax.random.key(0))
