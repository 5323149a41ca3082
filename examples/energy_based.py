"""Colour a grey photograph: an energy-based model, trained and tested without its constant.

    python examples/energy_based.py [--splits 3] [--quick] [--figure energy_based.png]

A pixel of scikit-learn's photograph of a pagoda is so bright: which colour has it?  In the dark it
may be a tree, red wood or a shadow, hence the law of the colour, two numbers, is far from normal.
The energy-based model is a network,

    p(colour | brightness) = exp(network(colour, brightness) - |colour|^2 / 8) / constant,

whose constant nobody knows.  Score matching trains it by its score, grad log p, and the test with a
`SteinKernel` asks pixels that are held out whether it is calibrated, again by the score alone.

With 4000 pixels for training and 500 for the test, the test rejects normal laws in all of 10
random splits at the 5 % level, and the energy-based model in one; the size of the network was
chosen on such splits. Of two models that learn from 400 pixels it rejects the one without a
penalty in 7 splits, and the one with a penalty, which is the better of them by far, in all 10. A
p-value does not rank models: the first one has peaks at the colours of its training, and a few
huge scores drown what the test could see. The loss of score matching on the same pixels does rank
them. Neither sees much of how likely groups of colours are that lie far apart: the score within
each group does not say. About a minute on two CPU cores.
"""

import argparse
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _common import init_mlp, mlp, train
from matplotlib.figure import Figure
from sklearn.datasets import load_sample_image

import calibjax as cj

N_TRAIN, N_TEST, N_POINTS = 4000, 500, 50
# The lengthscale of colours is fixed before training, in tenths of the brightest as they are.
COLOURS = cj.GaussianKernel(0.5)
BRIGHTNESSES = 1.5, 3.0, 4.5


def load():
    """Brightness ``[n]``, colour ``[n, 2]``, and red, green and blue ``[n, 3]``, in tenths.

    A pixel is the mean over 4 x 4 of the photograph.  The sky, brighter than 7, is left out.
    """
    image = load_sample_image("china.jpg")[:424] / 25.5
    rgb = image.reshape(106, 4, 160, 4, 3).mean(axis=(1, 3)).reshape(-1, 3)
    rgb = rgb[rgb.mean(axis=1) < 7]
    red, green, blue = rgb.T
    colours = np.stack([red - green, blue - (red + green) / 2], axis=1)
    return jnp.asarray(rgb.mean(axis=1), jnp.float32), jnp.asarray(colours, jnp.float32), rgb


def energy(params, brightness, colour):
    """A log density; the parabola makes it integrable, whatever the network says."""
    inputs = jnp.append(colour, brightness - 3)
    return mlp(params, inputs, jax.nn.silu)[0] - jnp.sum(colour**2) / 8


def normal(params, brightness, colour):
    """The log density of a normal law, whose mean and covariance matrix come from a network."""
    loc, *rows = mlp(params, brightness[None] - 3, jax.nn.silu).reshape(3, 2)
    root = jnp.stack(rows)  # of the inverse of the covariance matrix
    deviations = root @ (colour - loc)
    return jnp.log(jnp.abs(jnp.linalg.det(root))) - jnp.sum(deviations**2) / 2


def predict(log_density, params, brightness) -> cj.Unnormalized:
    return cj.Unnormalized.from_log_density(functools.partial(log_density, params), brightness)


def score_matching(predictions, colours, weight=0.0):
    """E |s|^2 / 2 + div s for the score s, which is E |s - true score|^2 / 2 up to a constant.

    The penalty keeps a network from a peak at each colour that it is trained with.
    """
    scores, derivative = jax.linearize(predictions.score, colours)
    slopes = [derivative(jnp.zeros_like(colours).at[:, c].set(1.0))[:, c] for c in range(2)]
    penalty = sum(jnp.mean(slope**2) for slope in slopes)
    return jnp.mean(jnp.sum(scores**2, axis=1) / 2 + sum(slopes)) + weight * penalty


def pvalue(predictions, colours, points):
    """By the score alone.  The points, colours of the training, do not depend on the targets."""
    distance = cj.FisherDistance(points)
    between = cj.DistanceKernel(distance, cj.median_heuristic(distance, predictions))
    kernel = cj.SteinKernel(between, COLOURS)
    key = jax.random.key(0)
    return cj.asymptotic_skce_test(key, kernel, predictions, colours, method="wild").pvalue


class Model(NamedTuple):
    """A log density up to a constant, a loss, and the sizes of the layers."""

    log_density: Callable[..., jax.Array]
    loss: Callable[..., jax.Array]
    sizes: tuple[int, ...]


NORMAL = Model(
    normal,
    lambda params, *data: -jnp.mean(jax.vmap(normal, (None, 0, 0))(params, *data[:2])),
    (1, 64, 64, 6),
)
ENERGY = Model(
    energy,
    lambda params, brightness, *rest: score_matching(predict(energy, params, brightness), *rest),
    (3, 64, 64, 1),
)
# The number of pixels for training, of epochs, and the weight of the penalty.
MODELS = {
    "normal": (NORMAL, N_TRAIN, 60, 0.0),
    "energy-based": (ENERGY, N_TRAIN, 60, 0.0),
    "energy-based, 400 pixels": (ENERGY, 400, 300, 0.0),
    "the same, with a penalty": (ENERGY, 400, 300, 0.03),
}


def draw_densities(axes, model: Model, params, brightness, colours, rgb) -> None:
    """Regions that hold 50, 80 and 95 % of the density, and pixels that are about as bright."""
    for ax, value in zip(axes, BRIGHTNESSES, strict=True):
        x, y = grid = np.meshgrid(np.linspace(-3, 5, 120), np.linspace(-5, 2, 120))
        points = jnp.asarray(np.stack(grid, axis=-1).reshape(-1, 2), jnp.float32)
        logs = jax.vmap(model.log_density, (None, None, 0))(params, jnp.array(value), points)
        mass = np.asarray(jax.nn.softmax(logs))
        ranked = np.sort(mass)[::-1]
        levels = [ranked[np.searchsorted(np.cumsum(ranked), part)] for part in (0.95, 0.8, 0.5)]
        ax.contour(x, y, mass.reshape(x.shape), levels=levels, colors="0.3", linewidths=0.8)
        near = np.abs(brightness - value) < 0.3
        ax.scatter(*colours[near].T, c=rgb[near] / 10, s=14, edgecolors="0.5", linewidths=0.2)
        ax.set(xlabel="red - green", title=f"brightness {value:g}")


def fit(keys, model: Model, data, epochs: int, weight: float):
    """The parameters, with a leading axis of splits."""
    batch_size = len(data[0][0]) // 20
    start = jax.vmap(lambda key: init_mlp(key, model.sizes))(keys)
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, 20 * epochs))
    weights = jnp.array([weight])
    fitted = train(
        model.loss, optimizer, start, data, weights, keys, epochs=epochs, batch_size=batch_size
    )
    return jax.tree.map(lambda x: x[0], fitted)


def test(model: Model, params, brightness, colours, points):
    """The p-value and the loss of score matching on pixels that are held out."""
    predictions = predict(model.log_density, params, brightness)
    return pvalue(predictions, colours, points), score_matching(predictions, colours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a run of seconds, only to try it")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--figure", default="energy_based.png")
    args = parser.parse_args()
    n_splits = 2 if args.quick else args.splits

    brightness, colours, rgb = load()
    keys = jax.random.split(jax.random.key(0), n_splits)
    orders = jax.vmap(lambda key: jax.random.permutation(key, len(colours)))(keys)
    held_out = orders[:, N_TRAIN : N_TRAIN + N_TEST]
    lines = [f"{'':<26}{'rejected':>10}{'median p':>10}{'score matching':>16}"]
    figure = Figure(figsize=(9, 11), layout="constrained")
    rows = figure.subplots(len(MODELS), len(BRIGHTNESSES), sharex=True, sharey=True)
    for (name, (model, n_train, epochs, weight)), axes in zip(MODELS.items(), rows, strict=True):
        print(name)
        used = orders[:, :n_train]
        data = brightness[used], colours[used]
        params = fit(keys, model, data, 10 if args.quick else epochs, weight)
        asked = brightness[held_out], colours[held_out], data[1][:, :N_POINTS]
        p, loss = jax.jit(jax.vmap(functools.partial(test, model)))(params, *asked)
        n_rejected = f"{np.sum(p <= 0.05)} of {n_splits}"
        lines.append(f"{name:<26}{n_rejected:>10}{np.median(p):>10.3f}{np.median(loss):>16.1f}")
        first, pixels = jax.tree.map(lambda x: x[0], params), np.asarray(held_out[0])
        draw_densities(axes, model, first, *(x[pixels] for x in (brightness, colours, rgb)))
        axes[0].set(ylabel=f"{name}, p = {p[0]:.3f}\nblue - yellow")
    print("\nHeld-out pixels; medians over splits:")
    print("\n".join(lines))
    figure.savefig(args.figure, dpi=150)
    print(f"Figure: {args.figure}")


if __name__ == "__main__":
    main()
