"""What the loops of optax, Flax NNX and Equinox share: images, batches, a loss with a penalty."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import calibjax as cj

EPOCHS, WEIGHT = 60, 30.0

# Digits that have lost 60 % of their pixels, so that there is something to be unsure about.
images, digits = load_digits(return_X_y=True)
images = np.float32(images / 16 * (np.random.default_rng(0).random(images.shape) < 0.4))
training, held_out = (images[:1000], digits[:1000]), (images[1000:], digits[1000:])

# Made before the training: a kernel that follows the predictions can be gamed by them.
kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 1.0), cj.WhiteKernel())


def penalized(logits, labels, where, weight=WEIGHT):
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    predictions = cj.Categorical.from_logits(logits)
    penalty = cj.skce(kernel, predictions, labels, unbiased=False, where=where)
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
    error = 1000 * cj.skce(kernel, predictions, labels)
    print(f"held out: accuracy {accuracy:.3f}, log loss {nll:.3f}, 1000 SKCE {error:.2f}")
