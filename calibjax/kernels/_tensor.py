"""Kernels on pairs of a prediction and a target."""

import jax

from calibjax._struct import struct
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
