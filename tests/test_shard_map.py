"""Inside of a user's `jax.shard_map`, which keeps track of what may differ between devices."""

import functools

import jax
import numpy as np
import pytest
from instances import sample

import calibjax as cj

N, D = 24, 2


def of_each_device(function, *batch):
    """The function of each half of a batch, computed on a device of its own."""
    mesh = jax.make_mesh((D,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("rows")

    def local(*half):
        return jax.tree.map(lambda x: x[None], function(*half))

    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=rows))(*batch)


def check(function, *batch):
    found = of_each_device(function, *batch)
    halves = jax.tree.map(lambda x: x.reshape(D, N // D, *x.shape[1:]), batch)
    expected = jax.lax.map(lambda half: function(*half), halves)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
    jax.tree.map(close, found, expected)


NAMES = [
    "categorical-tv-white",
    "normal-w2-gaussian",
    "diag-w2-gaussian",
    "mixture-mw2-gaussian",
    "empirical-mean_embedding-laplacian",
    "poisson-embedding-white",
]


@pytest.mark.parametrize("block_size", [None, 5])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, block_size, float64):
    kernel, *batch = sample(name, N)

    def estimate(predictions, targets):
        skce = functools.partial(cj.skce, kernel, targets=targets, block_size=block_size)
        return jax.value_and_grad(skce)(predictions)

    check(estimate, *batch)


def test_what_else_sums_over_rows(key, float64):
    kernel, *batch = sample("categorical-tv-white", N)

    def estimates(predictions, targets):
        own = cj.default_kernel(predictions)
        state = cj.SKCEState.empty(4).update(kernel, predictions, targets)
        gamma = cj.asymptotic_skce_test(key, own, predictions, targets, method="gamma")
        return (
            cj.mmce(predictions, targets),
            cj.ece(predictions, targets),
            cj.witness(kernel, predictions, targets, predictions[:3], targets[:3]),
            gamma.pvalue,
            state.compute().pvalue,
            cj.skce(kernel, predictions, targets, where=targets < 3),
        )

    check(estimates, *batch)


RNG = np.random.default_rng(1)
CLASSES = cj.Categorical(RNG.dirichlet(np.ones(3), N).astype("float32"))
LABELS = RNG.integers(0, 3, N).astype("int32")
OF_CLASSES = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())


def test_eager_shard_map_without_tracking():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")

    def estimate(probs, labels):
        return cj.skce(OF_CLASSES, cj.Categorical(probs), labels)[None]

    found = jax.shard_map(estimate, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(
        CLASSES.probs, LABELS
    )
    np.testing.assert_allclose(found[0], cj.skce(OF_CLASSES, CLASSES, LABELS), rtol=1e-5)
