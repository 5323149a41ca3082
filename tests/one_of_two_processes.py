"""One of two processes with two devices each; prints what they find together.

Not a test: tests/test_sharding.py starts it twice, with a port and its number, and compares with
what one process finds alone.
"""

import json
import sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import calibjax as cj

N, M = 240, 4


def rate(p):
    return p.rate


def masked_stein(predictions, targets):
    """Whether densities vanish at the ends of their support is a question to all kept rows."""
    kernel = cj.SteinKernel(cj.DistanceKernel(cj.EmbeddingDistance(rate)), cj.GaussianKernel(1.0))
    probs = predictions.probs
    positive = cj.Gamma(2.5 + probs[:, 0], 1 + probs[:, 1])
    return cj.skce(kernel, positive, 0.5 + probs[:, 2], where=targets > 0)


def results(predictions, targets):
    kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 0.4), cj.WhiteKernel())
    arguments = kernel, predictions, targets
    test = cj.asymptotic_skce_test(jax.random.key(0), *arguments, n_resamples=99)
    gradient = jax.jit(jax.grad(cj.skce, argnums=1))(*arguments).probs
    state = cj.SKCEState.empty(7).update(*arguments).compute()
    found = {
        "skce": cj.skce(*arguments),
        "blocks across processes": cj.skce(*arguments, block_size=50),
        "lengthscale": cj.default_kernel(predictions).prediction_kernel.lengthscale,
        "pvalue": test.pvalue,
        "standard_error": test.standard_error,
        "stream": state.pvalue,
        "masked Stein": masked_stein(predictions, targets),
    }
    return {name: float(value) for name, value in found.items()}, gradient


def samples():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(M), N).astype(np.float32)
    return probs, rng.integers(M, size=N).astype(np.int32)


def main():
    port, number = sys.argv[1], int(sys.argv[2])
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)
    probs, targets = samples()
    mesh = jax.make_mesh((4,), ("rows",))
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    half = slice(number * N // 2, (number + 1) * N // 2)

    def place(x):
        return jax.make_array_from_process_local_data(sharding, x[half])

    with jax.set_mesh(mesh):
        found, gradient = results(cj.Categorical(place(probs)), place(targets))
        try:
            cj.skce(
                cj.default_kernel(cj.Categorical(probs)),
                cj.Categorical(place(probs)),
                place(targets + 2),
            )
        except ValueError as error:
            found["error"] = str(error)
    shards = [
        (x.index[0].start or 0, np.asarray(x.data).tolist()) for x in gradient.addressable_shards
    ]
    print(json.dumps([found, shards]))


if __name__ == "__main__":
    main()
