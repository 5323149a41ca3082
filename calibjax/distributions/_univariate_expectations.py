"""Univariate predictions with target kernels that make use of the gaps between their points.

A point x with a gap g stands for an interval of the length g, or whatever a kernel makes of it.  A
target is a point with the gap 0.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import Partial

from calibjax._numbers.derivatives import absolute
from calibjax.distributions._univariate import Univariate
from calibjax.expectations import inner_product, mean_embedding
from calibjax.expectations.finite_sums import measure_of_residual, register_sums
from calibjax.kernels import GaussianKernel, LaplacianKernel, WhiteKernel
from calibjax.kernels.targets import LengthscaleKernel, in_lengthscales

#: Points and gaps (x, g) in units of the lengthscale, each ``[S]``.
Points = tuple[jax.Array, jax.Array]
#: Points and their weights ``[S]``.
Measure = tuple[Points, jax.Array]


#: A function of the gaps ``[S]`` of a prediction, and of their mean, that takes their place.
OfGaps = Callable[[jax.Array, jax.Array], jax.Array]


def _measure(p: Univariate, kernel: LengthscaleKernel, of_gaps: OfGaps) -> Measure:
    """The points of a prediction."""
    points, weights = p.atoms()
    (x,) = in_lengthscales(kernel, points)
    between = jnp.diff(x)
    inner = (between[1:] + between[:-1]) / 2
    gaps = jnp.abs(jnp.concatenate([between[:1], inner, between[-1:]]))
    return (x, of_gaps(gaps, jnp.sum(weights * gaps))), weights


def residual_measure(
    p: Univariate, kernel: LengthscaleKernel, y: jax.Array, of_gaps: OfGaps
) -> Measure:
    """The signed measure delta_y - p."""
    return measure_of_residual(_measure(p, kernel, of_gaps), _point(kernel, y))


def _point(kernel: LengthscaleKernel, y: jax.Array) -> Points:
    (y,) = in_lengthscales(kernel, y)
    return y[None], jnp.zeros_like(y)[None]


def sums_for(
    kernel_type: type, of_points: Callable[[Points, Points], jax.Array], of_gaps: OfGaps
) -> None:
    """Registers sums of a function of (x, g) and (z, f) over all pairs of points."""
    register_sums(
        Univariate,
        kernel_type,
        measure=lambda p, kernel: _measure(p, kernel, of_gaps),
        point=_point,
        of_points=lambda kernel: Partial(of_points),
    )


# In units of the gaps, the deviation of the distribution of a point.  A sum of such distributions
# over an even grid is even within 2e-3.
_WIDTH = 0.6


def of_normals(a: Points, b: Points) -> jax.Array:
    """E exp(-(X - Z)^2 / 2) for independent X ~ N(x, v) and Z ~ N(z, u).

    In units of the lengthscale, the points x_s of a prediction stand for normal variables of the
    variances v_s: E k(Y, y) = sum_s a_s (1 + v_s)^{-1/2} exp(-(x_s - y)^2 / (2 (1 + v_s))).  All
    v_s are 0 unless the points are so far from each other that the kernel would see single ones.
    """
    (x, v), (z, u) = a, b
    root = lax.rsqrt(1 + v + u)
    return root * jnp.exp(-jnp.square((x - z) * root) / 2)


def variances(gaps: jax.Array, mean_gap: jax.Array) -> jax.Array:
    """The variances of the distributions of all points, proportional to the squares of the gaps."""
    relative = gaps / jnp.where(mean_gap > 0, mean_gap, 1.0)
    # An infinite square would make the derivative NaN.
    square = jnp.minimum(jnp.square(_WIDTH * mean_gap), jnp.finfo(gaps.dtype).max)
    return jnp.maximum(square - 1, 0.0) * jnp.square(relative)


sums_for(GaussianKernel, of_normals, variances)


def of_intervals(a: Points, b: Points) -> jax.Array:
    """exp(-|d|) for two points, with the correction for the wider one of their intervals.

    The trapezoidal rule has an error of order g^2 at the kink of exp(-|d|), for points at distances
    g.  Near the kink the kernel is 1 - |d|.  The integral of |d| over the interval of length g
    around a point is g |d|, and in the interval with the kink it is larger by (g / 2 - |d|)^2.  The
    mean of this over all positions of the kink in its interval, g^2 / 12, is not an error: by the
    Euler-Maclaurin formula it comes from the ends of the range, where exp(-|d|) is 0 and |d| is
    not.  So the values of the kernel become

        exp(-|d|) - (g / 2 - |d|)_+^2 / g + (g / 12) (1 - |d| / g)_+,

    where the last term adds up to g^2 / 12 for every position of the kink.  The error is of order
    g^3.

    Gaps that are wider than the kernel take the mean of the kernel over the interval, which is
    (exp(-(|d| - g / 2)) - exp(-(|d| + g / 2))) / g outside of the interval and
    (2 - exp(|d| - g / 2) - exp(-(|d| + g / 2))) / g inside.
    """
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


sums_for(LaplacianKernel, of_intervals, widths)


def refuse_white_kernel(
    p: Univariate, kernel: WhiteKernel, other: jax.Array | Univariate
) -> jax.Array:
    # Single points of a quadrature would be as probable as their weights.
    raise TypeError(
        "WhiteKernel is for labels and counts, but targets of "
        f"{type(p).__name__} predictions are real numbers, of which no two are equal."
    )


for function in (mean_embedding, inner_product):
    function.register(Univariate, WhiteKernel)(refuse_white_kernel)
