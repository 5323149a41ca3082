"""Binary predictions: ours, and those of probcal (NumPy)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj

#: probcal's h has the factor 2 of two classes, and its Laplace kernel is exp(-|p - q| / bandwidth).
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation(), 1.0), cj.WhiteKernel())


def binary_data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and events that are more frequent than predicted."""
    rng = np.random.default_rng(0)
    probs = rng.random(n)
    return probs.astype(np.float32), (rng.random(n) < probs**0.9).astype(np.int32)


def skce(n: int) -> Callable[[], jax.Array]:
    probs, events = map(jnp.asarray, binary_data(n))
    return lambda: cj.skce(KERNEL, cj.Bernoulli(probs), events)


def skce_by_probcal(n: int) -> Callable[[], float]:
    from probcal.metrics import kernel

    probs, events = binary_data(n)
    probs = probs.astype(np.float64)
    return lambda: kernel.skce(events, probs, estimator="uq", kernel="laplace", bandwidth=1.0)


def test(n: int, n_resamples: int) -> Callable[[], tuple[Any, Any]]:
    """Estimate and p-value."""
    probs, events = map(jnp.asarray, binary_data(n))

    def call():
        result = cj.asymptotic_skce_test(
            jax.random.key(0), KERNEL, cj.Bernoulli(probs), events, n_resamples=n_resamples
        )
        return result.estimate, result.pvalue

    return call


def test_by_probcal(n: int, n_resamples: int) -> Callable[[], tuple[Any, Any]]:
    """Estimate and p-value."""
    from probcal.metrics import kernel

    probs, events = binary_data(n)
    probs = probs.astype(np.float64)

    def call():
        result = kernel.skce_test(
            events, probs, kernel="laplace", bandwidth=1.0, n_boot=n_resamples
        )
        return result.statistic, result.p_value

    return call
