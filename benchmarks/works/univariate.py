"""Estimates for predictions of one number, with expectations by quadrature."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import calibjax as cj
from benchmarks.works.data import real_data

FAMILIES = ("Normal", "StudentT", "LogNormal", "Gamma", "Weibull", "Quantiles")


def batch(family: str, n: int) -> tuple[Any, jax.Array]:
    """Predictions of a family, and targets drawn from them."""
    loc, scale, _ = map(jnp.asarray, real_data(n))
    levels = np.linspace(0.1, 0.9, 9)
    normal = cj.Normal(loc, scale)
    made = {
        "Normal": lambda: normal,
        "StudentT": lambda: cj.StudentT(jnp.full(n, 5.0), loc, scale),
        "LogNormal": lambda: cj.LogNormal(loc / 2, scale / 4),
        "Gamma": lambda: cj.Gamma(1 + 4 * scale, jnp.exp(-loc / 2)),
        "Weibull": lambda: cj.Weibull(1 + scale, jnp.exp(loc / 2)),
        "Quantiles": lambda: cj.Quantiles(
            jnp.stack([normal.quantile(level) for level in levels], axis=1), levels
        ),
    }
    predictions = made[family]()
    return predictions, predictions.sample(jax.random.key(0))


def skce(
    n: int, family: str, kernel: str = "Gaussian", gradient: bool = False
) -> Callable[[], Any]:
    """The estimate with a distance of locations and spreads, compiled."""
    predictions, targets = batch(family, n)
    product = cj.product_kernel(predictions)
    lengthscale = product.target_kernel.lengthscale
    target_kernel = {"Gaussian": cj.GaussianKernel, "Laplacian": cj.LaplacianKernel}[kernel]
    k = cj.TensorProduct(product.prediction_kernel, target_kernel(lengthscale))

    def value(predictions, targets):
        return cj.skce(k, predictions, targets)

    function = jax.jit(jax.value_and_grad(value) if gradient else value)
    return lambda: function(predictions, targets)
