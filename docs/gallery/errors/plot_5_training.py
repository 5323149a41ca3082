"""
A penalty while training
========================

Two equal networks are trained on the same 600 digits without 60 % of their pixels. The second adds
30 times its squared kernel calibration error to its loss. Trained for too long, the first becomes
over-confident, and its held-out loss rises. The penalty slows the beginning, and reduces this rise.

Made with :func:`calibjax.skce` inside of :func:`jax.grad`; :doc:`/train` explains how.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax
from sklearn.datasets import load_digits

import calibjax as cj

images, digits = map(jnp.asarray, load_digits(return_X_y=True))
images = images / 16 * jax.random.bernoulli(jax.random.key(0), 0.4, images.shape)
kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.5), cj.WhiteKernel())
optimizer = optax.adam(3e-3)


def logits_of(weights, x):
    return jax.nn.relu(x @ weights["in"]) @ weights["out"]


def nll(weights, rows):
    logits = logits_of(weights, images[rows])
    return optax.softmax_cross_entropy_with_integer_labels(logits, digits[rows]).mean()


def loss(weights, rows, strength):
    predictions = cj.Categorical.from_logits(logits_of(weights, images[rows]))
    return nll(weights, rows) + strength * cj.skce(kernel, predictions, digits[rows])


@jax.jit
@jax.vmap
def train(strength):
    def step(carry, key):
        weights, state = carry
        gradient = jax.grad(loss)(weights, jax.random.choice(key, 600, (64,)), strength)
        updates, state = optimizer.update(gradient, state)
        weights = optax.apply_updates(weights, updates)
        return (weights, state), nll(weights, slice(600, None))

    shapes = {"in": (64, 64), "out": (64, 10)}
    weights = {k: 0.2 * jax.random.normal(jax.random.key(1), s) for k, s in shapes.items()}
    return jax.lax.scan(step, (weights, optimizer.init(weights)), keys)[1]


keys = jax.random.split(jax.random.key(2), 1000)
without, penalised = train(jnp.array([0.0, 30.0]))
figure, ax = plt.subplots()
ax.plot(without, label="without penalty")
ax.plot(penalised, label="with 30 x SKCE")
ax.set(title="Negative log-likelihood of other images", xlabel="steps", ylabel="NLL")
ax.legend()
