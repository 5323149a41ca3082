"""A batch of predictions of every family, with every target kernel that has closed forms."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks.works.data import label_data, real_data

WHITE = {"White": cj.WhiteKernel()}
GAUSSIAN = {"Gaussian": cj.GaussianKernel(1.0)}
LAPLACIAN = {"Laplacian": cj.LaplacianKernel(1.0)}
MATERN = {"Matern 3/2": cj.Matern32Kernel(1.0), "Matern 5/2": cj.Matern52Kernel(1.0)}


class Case(NamedTuple):
    """skce as a function of the predictions, and predictions."""

    function: Callable[[Any], jax.Array]
    predictions: Any


def root_of_rate(p: cj.Poisson) -> jax.Array:
    return jnp.sqrt(p.rate)


class Batch(NamedTuple):
    """Predictions, targets, a distance of `cj.default_kernel`, and target kernels by their names.

    No distance is that of mean embeddings under the target kernel.
    """

    predictions: Any
    targets: jax.Array
    distance: Any
    target_kernels: dict[str, Any]

    def kernels(self) -> dict[str, cj.TensorProduct]:
        """By the names of the target kernels."""
        return {
            name: cj.TensorProduct(
                cj.DistanceKernel(self.distance or cj.MeanEmbeddingDistance(kernel)), kernel
            )
            for name, kernel in self.target_kernels.items()
        }


def batches(n: int) -> dict[str, Batch]:
    """By the names of the families."""
    rng = np.random.default_rng(1)
    probs, labels = map(jnp.asarray, label_data(n, 10))
    loc, scale, reals = map(jnp.asarray, real_data(n))
    locs, scales, vectors = map(jnp.asarray, real_data(n, 10))
    rates = jnp.exp(loc)
    members = cj.Categorical(jnp.asarray(rng.dirichlet(np.ones(10), (n, 3)), jnp.float32))
    weights = jnp.asarray(rng.dirichlet(np.ones(3), n), jnp.float32)
    factor = jnp.tril(scales[:, :4].reshape(n, 2, 2))
    full = cj.MultivariateNormalFullCovariance(locs[:, :2], factor @ factor.mT)
    draws = jnp.asarray(rng.normal(size=(n, 20)), jnp.float32)
    wasserstein, total_variation = cj.Wasserstein(), cj.TotalVariation()
    found = {
        "Categorical": (cj.Categorical(probs), labels, total_variation, WHITE),
        "Bernoulli": (
            cj.Bernoulli(probs[:, 0]),
            (labels == 0).astype(jnp.int32),
            total_variation,
            WHITE,
        ),
        "Normal": (cj.Normal(loc, scale), reals, wasserstein, GAUSSIAN | LAPLACIAN | MATERN),
        "MultivariateNormalDiag (d = 10)": (
            cj.MultivariateNormalDiag(locs, scales),
            vectors,
            wasserstein,
            GAUSSIAN | LAPLACIAN,
        ),
        "Laplace": (cj.Laplace(loc, scale), reals, wasserstein, LAPLACIAN | GAUSSIAN),
        "MultivariateNormalFullCovariance (d = 2)": (full, vectors[:, :2], None, GAUSSIAN),
        "Poisson": (
            cj.Poisson(rates, max_count=64),
            jnp.asarray(rng.poisson(rates), jnp.int32),
            cj.EmbeddingDistance(root_of_rate),
            WHITE,
        ),
        "Mixture of 3 Normal": (
            cj.Mixture(weights, cj.Normal(locs[:, :3], scales[:, :3])),
            reals,
            None,
            GAUSSIAN,
        ),
        "Mixture.ensemble of 3 Categorical": (cj.Mixture.ensemble(members), labels, None, WHITE),
        "Empirical (S = 20)": (
            cj.Empirical(loc[:, None] + scale[:, None] * draws),
            reals,
            None,
            GAUSSIAN,
        ),
    }
    return {name: Batch(*batch) for name, batch in found.items()}


def cases(n: int) -> dict[str, Case]:
    """By the names of family and target kernel."""
    return {
        f"{family}, {name}": _case(batch.predictions, batch.targets, kernel)
        for family, batch in batches(n).items()
        for name, kernel in batch.kernels().items()
    }


def _case(predictions: Any, targets: jax.Array, kernel: Any) -> Case:
    return Case(lambda predictions: cj.skce(kernel, predictions, targets), predictions)
