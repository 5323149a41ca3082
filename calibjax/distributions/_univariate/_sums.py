"""Univariate predictions with a target kernel that makes use of the gaps between their points.

A point x with a gap g stands for an interval of the length g, or whatever a kernel makes of it.  A
target is a point with the gap 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax.distributions._univariate._univariate import Univariate
from calibjax.expectations import measure_of_residual, register_sums
from calibjax.kernels import in_lengthscales

#: Points and gaps (x, g) in units of the lengthscale, each ``[S]``, and weights ``[S]``.
Measure = tuple[tuple[jax.Array, jax.Array], jax.Array]


#: A function of the gaps ``[S]`` of a prediction, and of their mean, that takes their place.
OfGaps = Callable[[jax.Array, jax.Array], jax.Array]


def _measure(p: Any, kernel: Any, of_gaps: OfGaps) -> Measure:
    """The points of a prediction."""
    points, weights = p.atoms()
    (x,) = in_lengthscales(kernel, points)
    between = jnp.diff(x)
    inner = (between[1:] + between[:-1]) / 2
    gaps = jnp.abs(jnp.concatenate([between[:1], inner, between[-1:]]))
    return (x, of_gaps(gaps, jnp.sum(weights * gaps))), weights


def residual_measure(p: Any, kernel: Any, y: jax.Array, of_gaps: OfGaps) -> Measure:
    """The signed measure delta_y - p."""
    return measure_of_residual(_measure(p, kernel, of_gaps), _point(kernel, y))


def _point(kernel: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    (y,) = in_lengthscales(kernel, y)
    return y[None], jnp.zeros_like(y)[None]


def sums_for(
    kernel_type: type, of_points: Callable[[Any, Any], jax.Array], of_gaps: OfGaps
) -> None:
    """Registers sums of a function of (x, g) and (z, f) over all pairs of points."""
    register_sums(
        Univariate,
        kernel_type,
        measure=lambda p, kernel: _measure(p, kernel, of_gaps),
        point=_point,
        of_points=lambda kernel: of_points,
    )
