"""Steps of training of small networks, without and with the penalty."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax import lax

import calibjax as cj
from benchmarks.works.data import LABEL_KERNEL

Parameters = dict[str, jax.Array]


def cnn(parameters: Parameters, images: jax.Array) -> jax.Array:
    """Two convolutions of 3 x 3, each with a pooling of 2 x 2, and a dense layer."""
    x = images
    for name in ("conv1", "conv2"):
        x = lax.conv_general_dilated(
            x, parameters[name], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x).reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1)
        x = x.max(axis=(2, 4))
    return x.reshape(len(x), -1) @ parameters["dense"]


def mlp(parameters: Parameters, images: jax.Array) -> jax.Array:
    """Two hidden layers."""
    x = images.reshape(len(images), -1)
    for name in ("hidden1", "hidden2"):
        x = jax.nn.relu(x @ parameters[name])
    return x @ parameters["dense"]


#: name -> logits of images of 28 x 28 pixels, and the shapes of the parameters but for the last.
NETWORKS: dict[str, tuple[Callable, dict[str, tuple[int, ...]], int]] = {
    "CNN": (cnn, {"conv1": (3, 3, 1, 32), "conv2": (3, 3, 32, 64)}, 7 * 7 * 64),
    "MLP": (mlp, {"hidden1": (784, 512), "hidden2": (512, 512)}, 512),
}


def training_steps(network: str, batch: int, m: int) -> dict[str, Callable[[], Any]]:
    """A step of Adam "without" and "with" the penalty, and the "penalty" and its gradient alone.

    The kernel is fixed beforehand.
    """
    logits_of, shapes, width = NETWORKS[network]
    shapes = {**shapes, "dense": (width, m)}
    key_images, key_labels, *keys = jax.random.split(jax.random.key(0), 2 + len(shapes))
    parameters = {
        name: jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    images = jax.random.normal(key_images, (batch, 28, 28, 1))
    labels = jax.random.randint(key_labels, (batch,), 0, m)
    optimizer = optax.adam(1e-3)

    def penalty(logits):
        return cj.skce(LABEL_KERNEL, cj.Categorical.from_logits(logits), labels, unbiased=False)

    def step(weight, parameters, state):
        def loss(parameters):
            logits = logits_of(parameters, images)
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return nll + weight * penalty(logits) if weight else nll

        value, gradient = jax.value_and_grad(loss)(parameters)
        updates, state = optimizer.update(gradient, state)
        return value, optax.apply_updates(parameters, updates), state

    state = optimizer.init(parameters)
    calls = {
        name: functools.partial(jax.jit(functools.partial(step, weight)), parameters, state)
        for name, weight in (("without", 0.0), ("with", 1.0))
    }
    alone = jax.jit(jax.value_and_grad(penalty))
    return calls | {"penalty": functools.partial(alone, logits_of(parameters, images))}
