"""What the training examples share: a network, its training on a grid, a table, a figure."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

EPOCHS_PER_CALL = 10


def init_mlp(key: jax.Array, sizes: Sequence[int]) -> list[dict[str, jax.Array]]:
    """Parameters of a network with layers of these sizes, from inputs to outputs."""

    def layer(key, n_in, n_out):
        matrix = jax.random.normal(key, (n_in, n_out)) * jnp.sqrt(2 / n_in)
        return {"matrix": matrix, "bias": jnp.zeros(n_out)}

    keys = jax.random.split(key, len(sizes) - 1)
    return [layer(*shape) for shape in zip(keys, sizes[:-1], sizes[1:], strict=True)]


def mlp(
    params: list[dict[str, jax.Array]],
    inputs: jax.Array,
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
) -> jax.Array:
    *hidden, last = params
    for layer in hidden:
        inputs = activation(inputs @ layer["matrix"] + layer["bias"])
    return inputs @ last["matrix"] + last["bias"]


def over_grid(function: Callable[..., Any], weight_axes: tuple, seed_axes: tuple) -> Callable:
    """One jitted function for all weights (outer axis of the results) and seeds (inner axis)."""
    return jax.jit(jax.vmap(jax.vmap(function, seed_axes), weight_axes))


def train(
    loss: Callable[..., jax.Array],
    optimizer: optax.GradientTransformation,
    params: Any,
    data: Any,
    weights: jax.Array,
    keys: jax.Array,
    *,
    epochs: int,
    batch_size: int,
    warm_up: float = 0.0,
) -> Any:
    """Minimises ``loss(params, *batch, weight)`` for all weights and seeds at once.

    The weight grows linearly from 0 during the fraction `warm_up` of all steps, and stays.

    `params`, `data` and `keys` have a leading axis of seeds, the result has axes of weights and
    seeds.  For one seed all weights start from the same parameters and see the same batches:
    differences between weights are then differences within seeds.
    """

    n_batches = jax.tree.leaves(data)[0].shape[1] // batch_size
    n_warm = max(1.0, warm_up * epochs * n_batches)

    def some_epochs(state, keys, data, full_weight):
        def step(state, rows):
            params, moments, number = state
            weight = full_weight * jnp.minimum(1.0, (number + 1) / n_warm)
            batch = jax.tree.map(lambda x: x[rows], data)
            gradients = jax.grad(loss)(params, *batch, weight)
            updates, moments = optimizer.update(gradients, moments, params)
            return (optax.apply_updates(params, updates), moments, number + 1), None

        def epoch(state, key):
            n = jax.tree.leaves(data)[0].shape[0]
            order = jax.random.permutation(key, n)[: n_batches * batch_size]
            return jax.lax.scan(step, state, order.reshape(-1, batch_size))

        return jax.lax.scan(epoch, state, keys)[0]

    advance = over_grid(some_epochs, (0, None, None, 0), (0, 0, 0, None))
    state = jax.vmap(lambda params: (params, optimizer.init(params), 0))(params)
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(weights), *x.shape)), state)
    n_calls = epochs // EPOCHS_PER_CALL
    keys = jax.vmap(lambda key: jax.random.split(key, (n_calls, EPOCHS_PER_CALL)))(keys)
    start = time.perf_counter()
    for call in range(n_calls):
        state = jax.block_until_ready(advance(state, keys[:, call], data, weights))
        done, elapsed = (call + 1) * EPOCHS_PER_CALL, time.perf_counter() - start
        print(f"epoch {done} of {epochs}, {elapsed:.1f} s", flush=True)
    return state[0]


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds, the last axis, and its standard error."""
    return values.mean(-1), values.std(-1, ddof=1) / np.sqrt(values.shape[-1])


def report(weights: Sequence[float], metrics: Mapping[str, np.ndarray]) -> None:
    """Prints the table, and what the penalty changes against weight 0, the first one."""
    n_seeds = next(iter(metrics.values())).shape[-1]
    print(f"\nOn held-out data, mean ± standard error over {n_seeds} seeds:")
    print("weight" + "".join(f"{name:>20}" for name in metrics))
    for row, weight in enumerate(weights):
        cells = ["{:.3f} ± {:.3f}".format(*mean_and_error(x[row])) for x in metrics.values()]
        print(f"{weight:>6g}" + "".join(f"{cell:>20}" for cell in cells))

    print("\nChanges against weight 0, paired over seeds, that exceed two standard errors:")
    for name, values in metrics.items():
        changes = zip(weights[1:], *mean_and_error(values[1:] - values[0]), strict=True)
        clear = [
            f"{change:+.3f} ± {error:.3f} at {weight:g}"
            for weight, change, error in changes
            if abs(change) > 2 * error
        ]
        print(f"  {name}: {', '.join(clear) or 'no change'}.")


def plot(
    path: str,
    title: str,
    weights: Sequence[float],
    metrics: Mapping[str, np.ndarray],
    panels: Mapping[str, Sequence[str]],
) -> None:
    """One panel per axis label: every seed a thin line, means with standard errors on top."""
    figure = Figure(figsize=(4 * len(panels), 3.6), layout="constrained")
    figure.suptitle(f"{title}; mean ± standard error over seeds, thin lines: seeds")
    positions = np.arange(len(weights))
    for axes, (label, names) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        for number, name in enumerate(names):
            style = {"color": f"C{number}", "label": name}
            axes.plot(positions, metrics[name], color=f"C{number}", alpha=0.2, linewidth=0.7)
            axes.errorbar(positions, *mean_and_error(metrics[name]), marker="o", capsize=3, **style)
        axes.set_xticks(positions, [f"{weight:g}" for weight in weights])
        axes.set(xlabel="weight of the penalty", ylabel=label)
        axes.grid(alpha=0.3)
        if len(names) > 1:
            axes.legend()
    figure.savefig(path, dpi=150)
    print(f"\nFigure: {path}")
