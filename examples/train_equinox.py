"""A calibration penalty in a loop of Equinox: ``python examples/train_equinox.py``."""

import equinox as eqx
import jax
import optax
from _penalized import batches, held_out, penalized, report

network = eqx.nn.MLP(64, 10, width_size=128, depth=1, key=jax.random.key(0))
optimizer = optax.adam(3e-3)
state = optimizer.init(eqx.filter(network, eqx.is_array))


@eqx.filter_jit
def step(network, state, images, labels, where):
    def loss(network):  # predictions of a batch are one object: of the whole batch's logits
        return penalized(jax.vmap(network)(images), labels, where)

    updates, state = optimizer.update(eqx.filter_grad(loss)(network), state)
    return eqx.apply_updates(network, updates), state


for batch in batches():
    network, state = step(network, state, *batch)
report(jax.vmap(network)(held_out[0]))
