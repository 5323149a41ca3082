"""Predictions that are points with weights, with any target kernel: sums over (pairs of) points.

Each function is a double sum sum_st a_s b_t k(x_s, z_t) over the points and weights of two
measures.  A measure is a prediction, a point, or the signed measure delta_y - p.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._distribution import Distribution
from calibjax._sharding import as_varying
from calibjax._struct import PyTree
from calibjax.expectations._dispatch import (
    inner_product,
    mean_embedding,
    residual_product_tile,
    squared_distance_tile,
    squared_embedding_distance_tile,
)
from calibjax.kernels import KernelLike, pairwise

Family = TypeVar("Family", bound=type[Distribution])

# The least number of kernel values in one step of the loop.  A tile of many pairs of predictions
# takes one pair of points at a time; for a few pairs a step takes more points together.
_KERNEL_VALUES_PER_STEP = 64


#: Points ``[S, …]``, an array or a pytree of arrays, and weights ``[S]``.
Measure = tuple[PyTree, jax.Array]


def sums_over_atoms(family: Family) -> Family:
    """Class decorator: registers sums over atoms for a family that has `atoms`, for any kernel."""
    register_sums(
        family,
        object,
        measure=lambda p, kernel: p.atoms(),
        point=lambda kernel, y: y[None],
        of_points=lambda kernel: kernel,
    )
    return family


def register_sums(
    family: type[Distribution],
    kernel_type: type,
    measure: Callable[[Any, Any], Measure],
    point: Callable[[Any, jax.Array], PyTree],
    of_points: Callable[[Any], KernelLike],
) -> None:
    """Registers sums over pairs of points for a family and a kernel type.

    A residual product of one pair is four sums, of which many targets of one prediction share the
    one over its own points.

    Args:
        family: the family of the predictions.
        kernel_type: the type of the target kernel.
        measure: ``measure(p, kernel)``, the points and weights of one prediction.
        point: ``point(kernel, y)``, one target as points with a leading axis of length 1.
        of_points: ``of_points(kernel)``, the function of two points that is summed.
    """

    def residual_measure(p: Distribution, kernel: KernelLike, y: jax.Array) -> Measure:
        return measure_of_residual(measure(p, kernel), point(kernel, y))

    @mean_embedding.register(family, kernel_type)
    def measure_mean(p: Distribution, kernel: KernelLike, y: jax.Array) -> jax.Array:
        points, weights = measure(p, kernel)
        at_target = point(kernel, y), jnp.ones(1, weights.dtype)
        return double_sum(of_points(kernel), (points, weights), at_target)

    @inner_product.register(family, kernel_type)
    def measure_inner(p: Distribution, kernel: KernelLike, q: Distribution) -> jax.Array:
        return double_sum(of_points(kernel), measure(p, kernel), measure(q, kernel))

    @residual_product_tile.register(family, kernel_type)
    def measure_residual_tile(
        ps: Distribution, kernel: KernelLike, ys: jax.Array, qs: Distribution, zs: jax.Array
    ) -> jax.Array:
        measures = jax.vmap(residual_measure, (0, None, 0))
        left, right = measures(ps, kernel, ys), measures(qs, kernel, zs)
        return double_sum_tile(of_points(kernel), left, right)

    @squared_embedding_distance_tile.register(family, kernel_type)
    def measure_squared_distance_tile(
        ps: Distribution, kernel: KernelLike, qs: Distribution
    ) -> jax.Array:
        def inner_tile(ps: Distribution, kernel: KernelLike, qs: Distribution) -> jax.Array:
            measures = jax.vmap(measure, (0, None))
            return double_sum_tile(of_points(kernel), measures(ps, kernel), measures(qs, kernel))

        return squared_distance_tile(ps, kernel, qs, inner_tile)


def measure_of_residual(measure: Measure, target: PyTree) -> Measure:
    """The signed measure delta_y - p, ``[1 + S, …]`` and ``[1 + S]``, from p and the point y.

    h is the inner product of the embeddings of two such measures.
    """
    points, weights = measure
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), target, points)
    return points, jnp.concatenate([jnp.ones(1, weights.dtype), -weights])


def double_sum(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_s b_t k(x_s, z_t) for one pair of measures."""
    left, right = jax.tree.map(lambda x: x[None], (left, right))
    return double_sum_tile(kernel, left, right)[0, 0]


def double_sum_tile(kernel: KernelLike, left: Measure, right: Measure) -> jax.Array:
    """sum_st a_is b_jt k(x_is, z_jt) for all pairs of measures i and j, ``[R, R']``.

    The loops over points are outside, and each step makes a whole tile of pairs: on a CPU this is
    ten times faster than a sum over points for each pair.  The derivative evaluates each step
    again instead of storing all steps.
    """
    shape = left[1].shape[0], right[1].shape[0]
    per_side = max(1, round((_KERNEL_VALUES_PER_STEP / (shape[0] * shape[1])) ** 0.5))
    left, right = _chunks(left, per_side), _chunks(right, per_side)

    @jax.checkpoint
    def sum_of_chunks(x: PyTree, a: jax.Array, z: PyTree, b: jax.Array) -> jax.Array:
        def terms(x: PyTree, a: jax.Array, z: PyTree, b: jax.Array) -> jax.Array:
            return pairwise(kernel, x, z).astype(a.dtype) * a[:, None] * b[None, :]

        right_terms = jax.vmap(terms, in_axes=(None, None, 0, 0))
        all_terms = jax.vmap(right_terms, in_axes=(0, 0, None, None))(x, a, z, b)
        return jnp.sum(all_terms, axis=(0, 1))

    def over_left(total: jax.Array, chunk: Measure) -> tuple[jax.Array, None]:
        def over_right(total: jax.Array, other: Measure) -> tuple[jax.Array, None]:
            return total + sum_of_chunks(*chunk, *other), None

        return lax.scan(over_right, total, right)[0], None

    zeros = as_varying(jnp.zeros(shape, left[1].dtype), (kernel, left, right))
    return lax.scan(over_left, zeros, left)[0]


def _chunks(measures: Measure, size: int) -> Measure:
    """Points and weights ``[R, S, …]`` cut along their points, ``[chunks, size, R, …]``.

    Copies of the last point with weight 0 fill the last chunk.
    """
    points, weights = measures
    n_points = weights.shape[1]
    size = min(size, n_points)
    n_chunks = -(-n_points // size)
    index = jnp.arange(n_chunks * size)

    def cut(values: jax.Array) -> jax.Array:
        values = jnp.moveaxis(values, 1, 0)[jnp.minimum(index, n_points - 1)]
        return values.reshape(n_chunks, size, *values.shape[1:])

    is_point = (index < n_points).reshape(n_chunks, size, 1)
    return jax.tree.map(cut, points), jnp.where(is_point, cut(weights), 0.0)
