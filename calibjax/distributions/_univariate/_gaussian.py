r"""Univariate predictions with a Gaussian target kernel.

In units of the lengthscale, the points x_s of a prediction stand for normal laws of variances v_s:
E k(Y, y) = sum_s a_s (1 + v_s)^{-1/2} exp(-(x_s - y)^2 / (2 (1 + v_s))).  All v_s are 0 unless the
points are so far from each other that the kernel would see single ones.
"""

import jax
import jax.numpy as jnp

from calibjax._struct import struct
from calibjax.distributions._univariate._sums import sums_for
from calibjax.kernels import GaussianKernel

# In units of the gaps, the deviation of the law of a point.  A sum of such laws over an even grid
# is even within 2e-3.
_WIDTH = 0.6


@struct
class _OfNormals:
    """E exp(-(X - Z)^2 / 2) for independent X ~ N(x, v) and Z ~ N(z, u)."""

    def __call__(self, a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> jax.Array:
        shrinkage = 1 / (1 + a[1] + b[1])
        return jnp.sqrt(shrinkage) * jnp.exp(-jnp.square(a[0] - b[0]) * shrinkage / 2)


def variances(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The variances of the laws of all points, proportional to the squares of the gaps."""
    relative = gaps / jnp.where(mean_gap > 0, mean_gap, 1.0)
    return jnp.maximum(jnp.square(_WIDTH * mean_gap) - 1, 0.0) * jnp.square(relative)


sums_for(GaussianKernel, _OfNormals(), variances)
