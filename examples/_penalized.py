"""What the loops of optax, Flax NNX and Equinox share: images, batches, a loss with a penalty."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from train_digits import KERNEL, load

import calibjax as cj

EPOCHS, WEIGHT = 60, 30.0

# Digits that have lost 60 % of their pixels, so that there is something to be unsure about.
training, held_out = jax.tree.map(np.asarray, load(jax.random.key(0), kept_pixels=0.4))


def penalized(logits, labels, where, weight=WEIGHT):
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    predictions = cj.Categorical.from_logits(logits)
    penalty = cj.skce(KERNEL, predictions, labels, unbiased=False, where=where)
    return jnp.mean(nll, where=where) + weight * penalty


def batches(size: int = 128) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batches of one size, the last one of each epoch padded with rows that `where` hides."""
    images, labels = training
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(images))
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            where = np.arange(size) < len(rows)
            rows = np.resize(rows, size)
            yield images[rows], labels[rows], where


def report(logits):
    predictions, labels = cj.Categorical.from_logits(logits), held_out[1]
    accuracy = jnp.mean(jnp.argmax(logits, axis=1) == labels)
    nll = jnp.mean(cj.log_score(predictions, labels))
    error = 1000 * cj.skce(KERNEL, predictions, labels)
    print(f"held out: accuracy {accuracy:.3f}, log loss {nll:.3f}, 1000 SKCE {error:.2f}")
