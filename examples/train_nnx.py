"""A calibration penalty in a loop of Flax NNX: ``python examples/train_nnx.py``."""

import optax
from _penalized import batches, held_out, penalized, report
from flax import nnx


class Network(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(64, 128, rngs=rngs)
        self.second = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images):
        return self.second(nnx.relu(self.first(images)))


network = Network(nnx.Rngs(0))
optimizer = nnx.Optimizer(network, optax.adam(3e-3), wrt=nnx.Param)


@nnx.jit
def step(network, optimizer, images, labels, where):
    def loss(network):
        return penalized(network(images), labels, where)

    optimizer.update(network, nnx.grad(loss)(network))


for batch in batches():
    step(network, optimizer, *batch)
report(network(held_out[0]))
