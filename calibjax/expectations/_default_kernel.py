"""The kernel that the paper would choose."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._struct import widest_dtype
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    MultivariateNormalDiag,
    Normal,
    fill_masked,
)
from calibjax.kernels import (
    Distance,
    DistanceKernel,
    GaussianKernel,
    TensorProduct,
    TotalVariation,
    Wasserstein,
    WhiteKernel,
    median_heuristic,
)


@functools.singledispatch
def default_kernel(predictions: Any, *, where: jax.Array | None = None) -> TensorProduct:
    """The usual kernel for a family of predictions, from the predictions alone.

    Categorical, Bernoulli: exp(-TV(p, q) / l) 1{y = z}.  Normal, MultivariateNormalDiag:
    exp(-W(p, q) / l) exp(-|y - z|^2 / (2 s^2)).  Here l is the `median_heuristic`, and s is sqrt(2)
    times the median predicted standard deviation of each coordinate.  It never looks at targets,
    so tests with it stay valid given the predictions.  For a training loop compute it once, before
    training: a kernel that follows the predictions can be gamed by them.

    Args:
        predictions: a batch of n >= 2 predictions.
        where: boolean mask ``[n]``; masked rows may hold anything.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.default_kernel(cj.Bernoulli(jnp.array([0.0, 0.25, 1.0])))
        >>> float(kernel.prediction_kernel.lengthscale)
        0.75

    Reference: Widmann, Lindsten and Zachariah, Calibration tests beyond classification, ICLR 2021,
    Section 4 and Appendix A.
    """
    families = sorted(t.__name__ for t in default_kernel.registry if t is not object)
    raise TypeError(
        f"predictions must be one of {', '.join(families)} to have a default kernel, got "
        f"{type(predictions).__name__}."
    )


@default_kernel.register(Categorical)
@default_kernel.register(Bernoulli)
def _for_labels(predictions, *, where=None) -> TensorProduct:
    return _with_median_heuristic(TotalVariation(), predictions, where, WhiteKernel())


@default_kernel.register(Normal)
@default_kernel.register(MultivariateNormalDiag)
def _for_reals(predictions, *, where=None) -> TensorProduct:
    target_kernel = GaussianKernel(math.sqrt(2) * _median_deviation(predictions, where))
    return _with_median_heuristic(Wasserstein(), predictions, where, target_kernel)


def _with_median_heuristic(
    distance: Distance, predictions: Any, where: jax.Array | None, target_kernel: Any
) -> TensorProduct:
    lengthscale = median_heuristic(distance, predictions, where=where)
    return TensorProduct(DistanceKernel(distance, lengthscale), target_kernel)


def _median_deviation(predictions: Any, where: jax.Array | None) -> jax.Array:
    """The median predicted standard deviation of each coordinate; 1 where no row is kept."""
    dtype = widest_dtype(*jax.tree.leaves(predictions))
    if where is not None:
        predictions = fill_masked(predictions, where)
    deviation = jnp.sqrt(jax.tree.map(lambda x: x.astype(dtype), predictions).variance())
    if where is not None:
        kept = where.reshape(-1, *(1,) * (deviation.ndim - 1))
        median = jnp.nanmedian(jnp.where(kept, deviation, jnp.nan), axis=0)
        return jax.lax.stop_gradient(jnp.where(jnp.any(where), median, 1.0))
    return jax.lax.stop_gradient(jnp.median(deviation, axis=0))
