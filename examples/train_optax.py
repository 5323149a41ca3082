"""A calibration penalty in a loop of plain JAX and optax: ``python examples/train_optax.py``."""

import jax
import optax
from _penalized import batches, held_out, penalized, report

keys = jax.random.split(jax.random.key(0))
params = {
    "first": jax.random.normal(keys[0], (64, 128)) / 8,
    "second": jax.random.normal(keys[1], (128, 10)) / 8,
}
optimizer = optax.adam(3e-3)
state = optimizer.init(params)


def apply(params, images):
    return jax.nn.relu(images @ params["first"]) @ params["second"]


@jax.jit
def step(params, state, images, labels, where):
    def loss(params):
        return penalized(apply(params, images), labels, where)

    updates, state = optimizer.update(jax.grad(loss)(params), state)
    return optax.apply_updates(params, updates), state


for batch in batches():
    params, state = step(params, state, *batch)
report(apply(params, held_out[0]))
