"""The exact test with several kernels, and what others do with as many resamples."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks.works.binary import binary_data
from benchmarks.works.data import label_data, real_data


def _test(predictions: Any, targets: Any, n_resamples: int, kernels: Sequence[Any] | None = None):
    """The p-value; kernels are chosen beforehand, as for many data sets."""
    kernels = cj.default_kernels(predictions) if kernels is None else kernels
    return lambda: (
        cj.aggregated_skce_test(
            jax.random.key(0), kernels, predictions, targets, n_resamples=n_resamples
        ).pvalue
    )


def test_of_classes(n: int, m: int, n_resamples: int):
    probs, labels = map(jnp.asarray, label_data(n, m))
    return _test(cj.Categorical(probs), labels, n_resamples)


def binary_test(n: int, n_resamples: int):
    probs, events = map(jnp.asarray, binary_data(n))
    return _test(cj.Bernoulli(probs), events, n_resamples)


def test_of_numbers(n: int, n_resamples: int):
    loc, scale, targets = map(jnp.asarray, real_data(n))
    return _test(cj.Normal(loc, scale), targets, n_resamples)


def test_of_samples(n: int, n_samples: int, n_resamples: int):
    loc, scale, targets = map(jnp.asarray, real_data(n))
    noise = jax.random.normal(jax.random.key(1), (n, n_samples))
    predictions = cj.Empirical(loc[:, None] + scale[:, None] * noise)
    return _test(predictions, targets, n_resamples)


def test_of_kernels(n: int, n_kernels: int, n_resamples: int):
    """Ten classes and lengthscales around the median."""
    probs, labels = map(jnp.asarray, label_data(n, 10))
    predictions = cj.Categorical(probs)
    kernels = [
        cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 2.0**-i), cj.WhiteKernel())
        for i in range(n_kernels)
    ]
    return _test(predictions, labels, n_resamples, kernels)


def aggregation_of_all_pairs(n: int, m: int, n_resamples: int, n_kernels: int = 9):
    """Peer: n x n matrices and their products with all signs, as MMD-FUSE has them, in JAX.

    The wild bootstrap draws signs, statistics are divided by the norm of H, and the aggregate is
    the logarithm of their mean exponential.
    """

    @jax.jit
    def pvalue(key, probs, labels):
        distances = jnp.sum(jnp.abs(probs[:, None] - probs[None, :]), axis=-1) / 2
        residuals = jax.nn.one_hot(labels, m) - probs
        products = jnp.where(jnp.eye(n, dtype=bool), 0.0, residuals @ residuals.T)
        signs = jax.random.rademacher(key, (n, n_resamples + 1), jnp.float32).at[:, 0].set(1.0)

        def of_scale(scale):
            matrix = jnp.exp(-distances / scale) * products
            sums = jnp.sum(signs * (matrix @ signs), axis=0)
            return sums / jnp.sqrt(jnp.sum(jnp.square(matrix)))

        statistics = jax.lax.map(of_scale, 0.5 * 2.0 ** jnp.arange(2 - n_kernels, 2))
        fused = jax.nn.logsumexp(statistics, axis=0)
        return jnp.mean(fused >= fused[0])

    arguments = jax.random.key(0), *map(jnp.asarray, label_data(n, m))
    return lambda: pvalue(*arguments)


def t_cal(n: int, n_resamples: int) -> Callable[[], bool]:
    """Peer: the adaptive T-Cal test of Lee et al. (JMLR 2023) in NumPy, from its definition.

    The debiased squared error in 2^b bins is compared with resampled scores and labels, for each of
    the B scales at level 0.05 / B.
    """
    probs, events = binary_data(n)
    n_scales = int(2 * np.log2(n / np.sqrt(np.log(n))))

    def statistic(scores, labels, n_bins):
        _, bins = np.unique(np.floor(n_bins * scores).astype(np.int64), return_inverse=True)
        residuals = scores - labels
        sums, squares = np.bincount(bins, residuals), np.bincount(bins, residuals**2)
        return np.sum((sums**2 - squares) / np.bincount(bins)) / n

    def test():
        rng = np.random.default_rng(0)
        rejected = False
        for b in range(1, n_scales + 1):
            draws = []
            for _ in range(n_resamples):
                scores = rng.choice(probs, n)
                draws.append(statistic(scores, rng.random(n) < scores, 2**b))
            rejected |= statistic(probs, events, 2**b) > np.quantile(draws, 1 - 0.05 / n_scales)
        return rejected

    return test
