"""Univariate predictions with a target kernel that makes use of the gaps between their points.

A point x with a gap g stands for an interval of the length g, or whatever a kernel makes of it.  A
target is a point with the gap 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax.distributions._univariate._univariate import Univariate
from calibjax.expectations import (
    double_sum,
    double_sum_tile,
    inner_product,
    mean_embedding,
    residual_product,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance_tile,
)
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
    (points, weights), (target, one) = _measure(p, kernel, of_gaps), _point(kernel, y)
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), target, points)
    return points, jnp.concatenate([one, -weights])


def _point(kernel: Any, y: jax.Array) -> Measure:
    (y,) = in_lengthscales(kernel, y)
    return (y[None], jnp.zeros_like(y)[None]), jnp.ones_like(y)[None]


def sums_for(
    kernel_type: type, of_points: Callable[[Any, Any], jax.Array], of_gaps: OfGaps
) -> None:
    """Registers sums of a function of (x, g) and (z, f) over all pairs of points."""

    def measure(p, kernel):
        return _measure(p, kernel, of_gaps)

    def residual(p, kernel, y):
        return residual_measure(p, kernel, y, of_gaps)

    @mean_embedding.register(Univariate, kernel_type)
    def univariate_mean(p, kernel, y):
        return double_sum(of_points, measure(p, kernel), _point(kernel, y))

    @inner_product.register(Univariate, kernel_type)
    def univariate_inner(p, kernel, q):
        return double_sum(of_points, measure(p, kernel), measure(q, kernel))

    @residual_product.register(Univariate, kernel_type)
    def univariate_residual(p, kernel, y, q, z):
        return double_sum(of_points, residual(p, kernel, y), residual(q, kernel, z))

    @residual_product_tile.register(Univariate, kernel_type)
    def univariate_residual_tile(ps, kernel, ys, qs, zs):
        residuals = jax.vmap(residual, (0, None, 0))
        return double_sum_tile(of_points, residuals(ps, kernel, ys), residuals(qs, kernel, zs))

    @squared_embedding_distance_tile.register(Univariate, kernel_type)
    def univariate_squared_distance_tile(ps, kernel, qs):
        def inner_tile(ps, kernel, qs):
            measures = jax.vmap(measure, (0, None))
            return double_sum_tile(of_points, measures(ps, kernel), measures(qs, kernel))

        return squared_distance_tile(ps, kernel, qs, inner_tile)
