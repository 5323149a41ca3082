"""River's FriedmanDrift and the network of PITMonitor's experiment.

Ten features are uniform on [0, 1] and five of them matter; the targets have noise of variance 1.
The network learns 10 000 rows from before the drift, and is monitored on 2500 rows before the drift
and 2500 after it.

Source: Ikonomovska, Gama and Džeroski, Learning model trees from evolving data streams, 2011; River
0.26, ``synth.FriedmanDrift``, of which these streams have the law (its abrupt drift takes x5, where
the paper has x4); Farran, PITMonitor, arXiv:2603.13156, 2026.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import calibjax as cj

N_TRAIN, N_BEFORE, N_AFTER = 10_000, 2500, 2500
_SIZES = (10, 128, 128, 128)
_BATCH, _RATE = 256, 3e-4


def before(x: np.ndarray) -> np.ndarray:
    """The mean of the target before the drift; the features of a row are x[0], …, x[9]."""
    return 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]


def abrupt(rng: np.random.Generator, t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Other features matter."""
    return 10 * np.sin(np.pi * x[3] * x[5]) + 20 * (x[1] - 0.5) ** 2 + 10 * x[0] + 5 * x[2]


def gradual(rng: np.random.Generator, t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Half of the first 500 rows, and then all: other features matter."""
    after = 10 * np.sin(np.pi * x[3] * x[4]) + 20 * (x[1] - 0.5) ** 2 + 10 * x[0] + 5 * x[2]
    return np.where((t < 500) & (rng.random(t.shape) < 0.5), before(x), after)


def local(rng: np.random.Generator, t: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Two corners that grow twice: 1.6 % of the rows are wrong at first, and then 5.4 and 18 %."""
    third = N_AFTER // 3
    low = (x[1] < 0.3) & (x[2] < 0.3)
    low &= ((x[3] > 0.7) | (t >= 2 * third)) & ((x[4] < 0.3) | (t >= third))
    high = (x[1] > 0.7) & (x[2] > 0.7)
    high &= ((x[3] < 0.3) | (t >= 2 * third)) & ((x[4] > 0.7) | (t >= third))
    common = 20 * (x[2] - 0.5)
    in_low = 10 * x[0] * x[1] + common + 10 * x[3] + 5 * x[4]
    in_high = 10 * np.cos(x[0] * x[1]) + common + np.exp(x[3]) + 5 * x[4] ** 2
    return np.where(low, in_low, np.where(high, in_high, before(x)))


DRIFTS = {"abrupt": abrupt, "gradual": gradual, "local": local}


def rows_before(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Features ``[n, 10]`` and targets from before the drift."""
    x = rng.random((n, 10))
    return x, before(x.T) + rng.normal(size=n)


def stream(seed: int, drift: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets of the monitored rows; all drifts of a seed begin with the same rows."""
    rng = np.random.default_rng(seed)
    x, y = rows_before(rng, N_BEFORE)
    new = rng.random((N_AFTER, 10))
    mean = DRIFTS[drift](rng, np.arange(N_AFTER), new.T)
    return np.concatenate([x, new]), np.concatenate([y, mean + rng.normal(size=N_AFTER)])


#: ``model(x)`` returns predictions for features ``[n, 10]``.
Model = Callable[[np.ndarray], cj.Normal]


def true_law(x: np.ndarray) -> cj.Normal:
    return cj.Normal(jnp.asarray(before(x.T)), jnp.ones(len(x)))


def _parameters(key: jax.Array) -> list[Any]:
    """Layers as PyTorch draws them: uniform within 1 / sqrt(inputs)."""

    def layer(key, n_in, n_out):
        shapes, limit = ((n_in, n_out), (n_out,)), n_in**-0.5
        keys = jax.random.split(key)
        uniform = jax.random.uniform
        return [
            uniform(k, s, minval=-limit, maxval=limit) for k, s in zip(keys, shapes, strict=True)
        ]

    outputs = (*_SIZES[1:], 2)
    keys = jax.random.split(key, len(outputs))
    return [layer(*shape) for shape in zip(keys, _SIZES, outputs, strict=True)]


def _mean_and_log_variance(layers: list[Any], x: jax.Array) -> tuple[jax.Array, jax.Array]:
    *hidden, (matrix, bias) = layers
    for weights, offset in hidden:
        x = jax.nn.silu(x @ weights + offset)
    outputs = x @ matrix + bias
    return outputs[:, 0], outputs[:, 1]


def train(n_epochs: int) -> Model:
    """The network: three layers of 128, Adam with a cosine schedule, normal likelihood."""
    x, y = rows_before(np.random.default_rng(0), N_TRAIN)
    x_mean, x_scale, y_mean, y_scale = x.mean(0), x.std(0), y.mean(), y.std()
    data = jnp.asarray((x - x_mean) / x_scale), jnp.asarray((y - y_mean) / y_scale)
    n_batches = N_TRAIN // _BATCH
    schedule = optax.cosine_decay_schedule(_RATE, n_epochs * n_batches)
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(schedule))

    def loss(layers, x, y):
        mean, log_variance = _mean_and_log_variance(layers, x)
        return jnp.mean(log_variance + jnp.square(y - mean) * jnp.exp(-log_variance)) / 2

    def step(state, rows):
        layers, moments = state
        gradient = jax.grad(loss)(layers, *(values[rows] for values in data))
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(layers, updates), moments), None

    def epoch(state, key):
        order = jax.random.permutation(key, N_TRAIN)[: n_batches * _BATCH]
        return jax.lax.scan(step, state, order.reshape(n_batches, _BATCH))

    layers = _parameters(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), n_epochs)
    layers, _ = jax.jit(lambda *state: jax.lax.scan(epoch, state, keys)[0])(
        layers, optimizer.init(layers)
    )

    def model(x: np.ndarray) -> cj.Normal:
        mean, log_variance = _mean_and_log_variance(layers, jnp.asarray((x - x_mean) / x_scale))
        return cj.Normal(y_mean + y_scale * mean, y_scale * jnp.exp(log_variance / 2))

    return model
