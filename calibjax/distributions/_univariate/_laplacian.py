r"""Univariate predictions with a Laplacian target kernel.

The trapezoidal rule has an error of order g^2 at the kink of exp(-|d|), for points at distances g.
Near the kink the kernel is 1 - |d|.  The integral of |d| over the interval of length g around a
point is g |d|, and in the interval with the kink it is larger by (g / 2 - |d|)^2.  The mean of this
over all places of the kink in its interval, g^2 / 12, is no error: by the Euler-Maclaurin formula
it comes from the ends of the range, where exp(-|d|) is 0 and |d| is not.  So the values of the
kernel become

    exp(-|d|) - (g / 2 - |d|)_+^2 / g + (g / 12) (1 - |d| / g)_+,

where the last term adds up to g^2 / 12 for every place of the kink.  What is left is of order g^3.

Gaps that are wider than the kernel take the mean of the kernel over the interval, which is
(exp(-(|d| - g / 2)) - exp(-(|d| + g / 2))) / g outside of the interval and
(2 - exp(|d| - g / 2) - exp(-(|d| + g / 2))) / g inside.
"""

import jax
import jax.numpy as jnp

from calibjax._numbers import absolute
from calibjax._struct import struct
from calibjax.distributions._univariate._sums import sums_for
from calibjax.kernels import LaplacianKernel


@struct
class _OfIntervals:
    """exp(-|d|) for two points, with the correction for the wider one of their intervals."""

    def __call__(self, a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> jax.Array:
        distance, gap = absolute(a[0] - b[0]), jnp.maximum(a[1], b[1])
        value, excess = jnp.exp(-distance), distance - gap / 2
        width = jnp.where(gap > 0, gap, 1.0)
        missed = jnp.square(jnp.minimum(excess, 0.0)) / width
        of_point = value - missed + jnp.maximum(gap - distance, 0.0) / 12
        near_end = jnp.exp(-jnp.abs(excess))
        near_end = jnp.where(excess < 0, 2 - near_end, near_end)
        return jnp.where(gap > 1, (near_end - value * jnp.exp(-gap / 2)) / width, of_point)


def widths(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The lengths of the intervals, at most 1 unless most of them are wider than the kernel."""
    return jnp.where(mean_gap > 1, gaps, jnp.minimum(gaps, 1.0))


sums_for(LaplacianKernel, _OfIntervals(), widths)
