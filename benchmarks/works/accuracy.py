"""Estimates of the same number that cost less than all pairs, and how far off they are."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

import calibjax as cj
from benchmarks.works.data import LABEL_KERNEL
from benchmarks.works.stream import batch_of

#: ``estimate(key, predictions, targets)``
Estimate = Callable[[jax.Array, cj.Categorical, jax.Array], jax.Array]

N_CLASSES = 10


@functools.partial(jax.jit, static_argnums=1)
def over_confident(key: jax.Array, n: int) -> tuple[cj.Categorical, jax.Array]:
    """Predictions whose logits are 1.2 times too large, and labels: an SKCE that is not 0."""
    predictions, labels = batch_of(key, n, N_CLASSES)
    logits = 1.2 * jnp.log(predictions.probs)
    return cj.Categorical.from_logits(logits), labels


def of_all_pairs() -> Estimate:
    return jax.jit(lambda key, *data: cj.skce(LABEL_KERNEL, *data))


def of_blocks(block_size: int) -> Estimate:
    return jax.jit(lambda key, *data: cj.skce(LABEL_KERNEL, *data, block_size=block_size))


def of_random_features(n_features: int) -> Estimate:
    def estimate(key, *data):
        return cj.random_feature_skce(key, LABEL_KERNEL, *data, n_features=n_features).estimate

    return jax.jit(estimate)


def truth(n_batches: int, batch: int = 10_000, block_size: int = 100) -> jax.Array:
    """The SKCE of `over_confident`, from many more rows than any of the estimates."""

    def step(state, key):
        return state.update(LABEL_KERNEL, *over_confident(key, batch)), None

    keys = jax.random.split(jax.random.key(1), n_batches)
    state = jax.jit(lambda: jax.lax.scan(step, cj.SKCEState.empty(block_size), keys)[0])()
    return state.compute().estimate
