"""Kernels on pairs of a prediction and a target: tensor products, and features of such a pair."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._base.struct import struct, widest_dtype
from calibjax._data import Distribution
from calibjax._numbers import dot
from calibjax.kernels._base import Kernel, KernelLike, Sample, kernel_value, upper_bound


@struct
class TensorProduct(Kernel):
    """k((p, y), (q, z)) = k_P(p, q) k_Y(y, z): a prediction kernel times a target kernel.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel, or a callable of two predictions.
        target_kernel: k_Y, for example a GaussianKernel, or a callable of two targets.

    See also:
        `default_kernel` for a usual one, `FeatureKernel` and `SteinKernel` for others on pairs.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> kernel = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())
        >>> p, q = cj.Bernoulli(jnp.array(0.2)), cj.Bernoulli(jnp.array(0.7))
        >>> float(kernel((p, jnp.array(1)), (q, jnp.array(1))))
        0.6065
    """

    prediction_kernel: KernelLike
    target_kernel: KernelLike

    domain = "pairs"
    inner_functions = {"prediction_kernel": "predictions", "target_kernel": "targets"}

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        of_predictions = kernel_value(self.prediction_kernel, x[0], y[0])
        return of_predictions * kernel_value(self.target_kernel, x[1], y[1])

    def upper_bound(self) -> float | jax.Array:
        """The product of the bounds of both kernels."""
        return upper_bound(self.prediction_kernel) * upper_bound(self.target_kernel)


@struct
class FeatureKernel(Kernel):
    """k((p, y), (q, z)) = k_P(p, q) <f(p, y), f(q, z)>: the errors that a feature f can see.

    A feature is a number, or a vector, such as log p(y), or whether y is the most likely class of
    p.  The calibration error of the kernel is 0 if, among predictions that k_P holds for alike,
    the feature is on average what the predictions expect.

    `aggregated_skce_test` takes the kernel for every family.  Estimators take it for labels, where
    the expectation of the feature is a finite sum.

    Args:
        prediction_kernel: k_P, for example a DistanceKernel, or a callable of two predictions.
        feature: f, a function of *one* prediction and *one* target that returns a scalar or a
            vector.

    See also:
        `TensorProduct` for all features of a target kernel.

    Example:
        >>> import jax.numpy as jnp, calibjax as cj
        >>> distance = cj.DistanceKernel(cj.TotalVariation())
        >>> kernel = cj.FeatureKernel(distance, lambda p, y: y == jnp.argmax(p.probs))
        >>> predictions = cj.Categorical(jnp.array([[0.75, 0.25], [0.75, 0.25]]))
        >>> float(cj.skce(kernel, predictions, jnp.array([0, 1])))
        -0.1875
    """

    prediction_kernel: KernelLike
    feature: Callable[[Any, jax.Array], jax.Array]

    domain = "pairs"
    inner_functions = {"prediction_kernel": "predictions", "feature": "a feature"}

    def __call__(self, x: Sample, y: Sample) -> jax.Array:
        feature = VectorFeature(self.feature)
        product = dot(feature(*x), feature(*y))
        return kernel_value(self.prediction_kernel, x[0], y[0]) * product


@struct
class VectorFeature:
    """A feature f as a vector in the dtype of the prediction."""

    feature: Callable[[Any, jax.Array], jax.Array]

    def __call__(self, p: Distribution, y: jax.Array) -> jax.Array:
        value = jnp.asarray(self.feature(p, y))
        return jnp.ravel(value).astype(widest_dtype(*jax.tree.leaves(p)))
