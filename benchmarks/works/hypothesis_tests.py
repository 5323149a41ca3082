"""Hypothesis tests: ours, and the same products of matrices with BLAS or in JAX."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import pdist, squareform

import calibjax as cj
from benchmarks.works.data import LABEL_KERNEL, LENGTHSCALE, NORMAL_KERNEL, label_data, real_data


def bootstrap_test(n: int, m: int, n_resamples: int):
    """The bootstrap test of classes, with H and the draws in it."""
    probs, labels = map(jnp.asarray, label_data(n, m))
    arguments = jax.random.key(0), LABEL_KERNEL, cj.Categorical(probs), labels
    return lambda: cj.asymptotic_skce_test(*arguments, n_resamples=n_resamples).pvalue


def bootstrap_test_by_numpy(n: int, m: int, n_resamples: int):
    """Peer: the same products of matrices with BLAS, counts by bincount."""
    probs, labels = label_data(n, m)
    residuals = np.eye(m, dtype=np.float32)[labels] - probs

    def test():
        rng = np.random.default_rng(0)
        total_variation = squareform(pdist(probs, "cityblock").astype(np.float32)) / 2
        matrix = np.exp(-total_variation / LENGTHSCALE) * (residuals @ residuals.T)
        diagonal = np.diagonal(matrix)
        counts = np.empty((n_resamples, n), np.float32)
        for row in counts:
            row[:] = np.bincount(rng.integers(n, size=n), minlength=n)
        twice = np.sum(counts @ matrix * counts, axis=1) - counts @ diagonal
        draws = (n / (n - 1) * twice - 2 * (counts @ np.sum(matrix, axis=1))) / n**2
        total, trace = np.sum(matrix), np.sum(diagonal)
        statistic = (total - trace) / (n - 1) ** 2 - total / n**2
        return (1 + np.sum(draws >= statistic)) / (1 + n_resamples)

    return test


def bootstrap_test_by_products(n: int, m: int, n_resamples: int):
    """Peer: sum(V * (H @ V)) with all of H, as the aggregated two-sample tests in JAX have it.

    A column of V holds the centred counts of one resample, and the diagonal of H is 0.
    """

    @jax.jit
    def pvalue(key, probs, labels):
        distances = jnp.sum(jnp.abs(probs[:, None] - probs[None, :]), axis=-1) / 2
        residuals = jax.nn.one_hot(labels, m) - probs
        matrix = jnp.exp(-distances / LENGTHSCALE) * (residuals @ residuals.T)
        matrix = jnp.where(jnp.eye(n, dtype=bool), 0.0, matrix)
        rows = jax.random.randint(key, (n_resamples, n), 0, n)
        counts = jax.vmap(functools.partial(jnp.bincount, length=n))(rows).T - 1.0
        draws = jnp.sum(counts * (matrix @ counts), axis=0)
        return (1 + jnp.sum(draws >= jnp.sum(matrix))) / (1 + n_resamples)

    return functools.partial(pvalue, jax.random.key(0), *map(jnp.asarray, label_data(n, m)))


def normal_bootstrap_test(n: int, n_resamples: int):
    """The bootstrap test of normal predictions, with H and the draws in it."""
    loc, scale, targets = map(jnp.asarray, real_data(n))
    arguments = jax.random.key(0), NORMAL_KERNEL, cj.Normal(loc, scale), targets
    return lambda: cj.asymptotic_skce_test(*arguments, n_resamples=n_resamples).pvalue


def hypothesis_tests(n: int, m: int) -> dict[str, Callable[[], jax.Array]]:
    """Each test, with 1000 draws where it draws, and blocks of sqrt(n)."""
    probs, labels = map(jnp.asarray, label_data(n, m))
    predictions, key = cj.Categorical(probs), jax.random.key(0)
    data = LABEL_KERNEL, predictions, labels
    locations = cj.sample_test_locations(key, predictions, 10)
    estimator = jax.tree_util.Partial(cj.skce, LABEL_KERNEL)

    def asymptotic(method):
        return lambda: cj.asymptotic_skce_test(key, *data, method=method).pvalue

    tests = {
        "bootstrap": asymptotic("bootstrap"),
        "gamma": asymptotic("gamma"),
        "blocks of 2": lambda: cj.asymptotic_block_skce_test(*data).pvalue,
        "blocks of sqrt(n)": lambda: (
            cj.asymptotic_block_skce_test(*data, block_size=math.isqrt(n)).pvalue
        ),
        "cme, 10 locations": lambda: cj.asymptotic_cme_test(*data, *locations).pvalue,
        "distribution-free": lambda: cj.distribution_free_skce_test(*data).pvalue,
    }
    if n <= 1024:
        tests["spectrum"] = asymptotic("spectrum")
        tests["pearson"] = asymptotic("pearson")
        tests["consistency"] = lambda: cj.consistency_test(key, estimator, *data[1:]).pvalue
    return tests
