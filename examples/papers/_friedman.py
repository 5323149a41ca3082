"""The Friedman 1 regression problem and networks for it: data, initial parameters, training.

Y = 10 sin(pi X_1 X_2) + 20 (X_3 - 1/2)^2 + 10 X_4 + 5 X_5 + N(0, 1) with X uniform in [0, 1]^10.
The last five features are of no use.

The networks have layers of 10, 200, 50 and 1 units with ReLU, weights uniform in
± sqrt(6 / (inputs + outputs)) (Glorot and Bengio), biases 0, and are trained on all rows at once by
Adam with learning rate 1e-3 (ICLR 2021, A.3).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

SIZES = 10, 200, 50, 1


def friedman1(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """Features ``[n, 10]`` and targets ``[n]``, in single precision."""
    feature_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(feature_key, (n, SIZES[0]), jnp.float32)
    mean = 10 * jnp.sin(jnp.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    mean += 10 * x[:, 3] + 5 * x[:, 4]
    return x, mean + jax.random.normal(noise_key, (n,), jnp.float32)


def init_network(key: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """Matrix and bias of each layer."""

    def layer(key, n_in, n_out):
        limit = (6 / (n_in + n_out)) ** 0.5
        matrix = jax.random.uniform(key, (n_in, n_out), jnp.float32, -limit, limit)
        return matrix, jnp.zeros(n_out, jnp.float32)

    keys = jax.random.split(key, len(SIZES) - 1)
    return [layer(*shape) for shape in zip(keys, SIZES[:-1], SIZES[1:], strict=True)]


def network(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    """The predicted means, ``[n]``."""
    *hidden, (matrix, bias) = params
    for layer_matrix, layer_bias in hidden:
        x = jax.nn.relu(x @ layer_matrix + layer_bias)
    return (x @ matrix + bias)[:, 0]


def train(
    loss: Callable[[Any], jax.Array],
    params: Any,
    observe: Callable[[Any], Any],
    iterations: Sequence[int],
) -> Any:
    """Minimises ``loss(params)``; what `observe` sees after these iterations, stacked."""
    optimizer = optax.adam(1e-3)

    def step(_, state):
        params, moments = state
        updates, moments = optimizer.update(jax.grad(loss)(params), moments)
        return optax.apply_updates(params, updates), moments

    def advance(state, n_steps):
        state = lax.fori_loop(0, n_steps, step, state)
        return state, observe(state[0])

    n_steps = jnp.asarray(np.diff(iterations, prepend=0))
    return lax.scan(advance, (params, optimizer.init(params)), n_steps)[1]
